/* SPDX-License-Identifier: Apache-2.0 */
/* Reads many small pieces of another process's memory, from a cache of larger ones. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proc/memory.h"

struct malloc_reader;

/* 0; -ENOMEM. The space is shared. */
int reader_new(struct malloc_reader **out, struct space *space);
void reader_free(struct malloc_reader *reader);
/* Forgets what was read. */
void reader_clear(struct malloc_reader *reader);
/*
 * 0; -ENODATA: swapped out; other errors as space_read(). fresh: also reads again what is in
 * the cache.
 */
int reader_read(struct malloc_reader *reader, uint64_t address, void *out, size_t bytes, int fresh);
int reader_u64(struct malloc_reader *reader, uint64_t address, uint64_t *out);
/* Pages that were needed and are swapped out. */
uint64_t reader_swapped(const struct malloc_reader *reader);
