/* SPDX-License-Identifier: Apache-2.0 */
/* Private to symbols.c: debug files from debuginfod servers (fetch.h), for files that have none. */
#ifndef TRACER_SYMBOLS_FETCHED_H
#define TRACER_SYMBOLS_FETCHED_H

#include <stdint.h>

struct symbols;
struct file;

/*
 * Asks for the debug file of a file whose headers are read, and waits for the answer. 0: nothing is
 * to be waited for; -EAGAIN: no answer by until_ns (CLOCK_MONOTONIC; 0: do not wait).
 */
int fetched_wait(struct symbols *symbols, struct file *file, uint64_t until_ns);

#endif
