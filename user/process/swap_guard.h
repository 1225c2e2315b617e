/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a process's memory without bringing back what is swapped out. A page may still be swapped
 * out between the look and the read.
 */
#ifndef TRACER_PROCESS_SWAP_GUARD_H
#define TRACER_PROCESS_SWAP_GUARD_H

#include <stdint.h>
#include <sys/types.h>

#include "tables/address_set.h"

struct swap_guard {
	int pagemap;
	struct address_set pages; /* that were asked for and not read */
	uint64_t bytes;           /* of these */
};

/* 0; errors of pagemap_open(). The caller closes it. */
int swap_guard_open(struct swap_guard *guard, pid_t pid);
void swap_guard_close(struct swap_guard *guard);
/*
 * Whether memory may be read. 0: it is in memory, or not mapped; -EFAULT: a part is swapped out,
 * and its pages are counted, each once; -ESRCH; -ENOMEM; -errno.
 */
int swap_guard_check(struct swap_guard *guard, uint64_t address, uint64_t bytes);

#endif
