/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of a process exist, from /proc/PID/pagemap. A page of anonymous memory that was never
 * written to is zero; reading it would make the kernel fill the process's page tables.
 */
#ifndef TRACER_DUMP_RESIDENT_H
#define TRACER_DUMP_RESIDENT_H

#include <stdint.h>

#define RESIDENT_PAGES 1024u /* at most, of one question */

/* 0: it was never written to. */
enum resident { RESIDENT_NOT, RESIDENT_MEMORY, RESIDENT_SWAP };

/*
 * fd: pagemap_open()'s. what[i]: enum resident of page i of `pages` from address on. All are in
 * memory if it cannot be read.
 */
void resident_read(int fd, uint64_t address, uint32_t pages, uint8_t what[RESIDENT_PAGES]);

#endif
