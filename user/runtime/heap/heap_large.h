/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in blocks of malloc's, as records (abi/event_windows.h): by it the trace recognises
 * blocks that it saw in a window of probes.
 */
#pragma once

#include "runtime/heap/heap_kinds.h"

struct malloc_reader;

/*
 * Reads the chunk's size in front of these addresses, and what the blocks begin with, and passes it
 * on. states: as of glibc_states(), in the same order: a block that is known to be free counts as
 * free whatever it holds; NULL: a freed block is recognised only by what has changed. A block that
 * cannot be read is left out. used: as in struct event_census_large. 0, also if the time did not
 * suffice: *done is the number of addresses that were read; -ESRCH; -errno as heap_kinds_new();
 * errors of record().
 */
int heap_large_read(const struct python_runtime *runtime, struct malloc_reader *reader,
		    const uint64_t *addresses, const uint8_t *states, size_t count, uint64_t used,
		    const struct heap_kinds_opts *opts, size_t *done);
