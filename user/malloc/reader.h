/* SPDX-License-Identifier: Apache-2.0 */
/* Reads many small pieces of another process's memory, from a cache of larger ones. */
#ifndef TRACER_MALLOC_READER_H
#define TRACER_MALLOC_READER_H

#include <stddef.h>
#include <stdint.h>

#include "process/memory.h"

struct reader;

/* 0; -ENOMEM. The space is shared. */
int reader_new(struct reader **out, struct space *space);
void reader_free(struct reader *reader);
/* Forgets what was read. */
void reader_clear(struct reader *reader);
/*
 * 0; -ENODATA: swapped out; other errors as space_read(). fresh: also reads again what is in
 * the cache.
 */
int reader_read(struct reader *reader, uint64_t address, void *out, size_t bytes, int fresh);
int reader_u64(struct reader *reader, uint64_t address, uint64_t *out);
/* Pages that were needed and are swapped out. */
uint64_t reader_swapped(const struct reader *reader);

#endif
