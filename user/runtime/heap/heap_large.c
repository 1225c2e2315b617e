/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model. A block of glibc's malloc has in front of it {bytes before, size | flags}. A block that is
 * split, merged or served again for another request has another size; one that is freed has links
 * of malloc's in its first words, where an object has its type.
 */
#include "runtime/heap/heap_large.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/malloc/glibc_layout.h"
#include "runtime/malloc/reader.h"
#include "runtime/malloc/states.h"
#include "util/clock.h"
#include "util/hash.h"

#define PAGE       4096u
#define LOOK_BYTES 128u /* of a block */
#define LOOK_LEAST 16u  /* every block has as many */

struct looking {
	const struct python_runtime *runtime;
	const struct heap_kinds_opts *opts;
	struct malloc_reader *reader;
	struct heap_kinds *kinds;
	struct event_census_large *record;
};

static uint32_t bytes_to_read(uint64_t address)
{
	uint32_t bytes = PAGE - (uint32_t)(address % PAGE);

	return bytes > LOOK_BYTES ? LOOK_BYTES : bytes < LOOK_LEAST ? LOOK_LEAST : bytes;
}

/* 1: *out is set; 0: it cannot be read; -ESRCH; -EPERM. */
static int block_look(struct looking *looking, uint64_t address, struct event_large_block *out)
{
	uint8_t content[LOOK_BYTES] = {0};
	uint32_t bytes = bytes_to_read(address);
	uint64_t size;
	int err = address < GLIBC_HEADER ? -EFAULT
					 : reader_read(looking->reader, address - sizeof(size),
						       &size, sizeof(size), 0);

	err = err ?: reader_read(looking->reader, address, content, bytes, 0);
	if (err)
		return err == -ESRCH || err == -EPERM ? err : 0;
	size &= ~(uint64_t)GLIBC_SIZE_BITS;
	*out = (struct event_large_block){
		.address = address,
		.bytes = size > sizeof(size) ? size - sizeof(size) : 0,
		.kind = heap_kinds_of(looking->kinds, content, bytes),
	};
	/* Never 0, which says that there is none. */
	out->kind.print = (uint32_t)(hash_u64(size ^ (uint64_t)out->kind.print << 32) >> 32) | 1;
	return 1;
}

static int record_flush(struct looking *looking)
{
	struct event_census_large *record = looking->record;

	if (!record->count)
		return 0;
	record->header = (struct event_header){
		.type = EVENT_CENSUS_LARGE,
		.size = (uint32_t)(sizeof(*record) + record->count * sizeof(record->blocks[0])),
		.time_ns = clock_ns(CLOCK_MONOTONIC),
		.tgid = (uint32_t)looking->runtime->pid,
		.tid = (uint32_t)looking->runtime->pid};
	int err = looking->opts->record(looking->opts->context, record, record->header.size);
	record->count = 0;
	return err;
}

static int block_add(struct looking *looking, uint64_t address, int is_free)
{
	struct event_census_large *record = looking->record;
	struct event_large_block *block = &record->blocks[record->count];
	int got = 1;

	*block = (struct event_large_block){.address = address};
	if (!is_free)
		got = block_look(looking, address, block);
	if (got <= 0)
		return got;
	record->count++;
	return record->count == EVENT_LARGE_MAX ? record_flush(looking) : 0;
}

int heap_large_read(const struct python_runtime *runtime, struct malloc_reader *reader,
		    const uint64_t *addresses, const uint8_t *states, size_t count, uint64_t used,
		    const struct heap_kinds_opts *opts, size_t *done)
{
	struct looking looking = {
		.runtime = runtime,
		.opts = opts,
		.reader = reader,
		.record = calloc(1, sizeof(*looking.record) +
					    EVENT_LARGE_MAX * sizeof(looking.record->blocks[0]))};
	int err = looking.record ? heap_kinds_new(&looking.kinds, runtime) : -ENOMEM;

	reader_clear(reader);
	if (!err)
		looking.record->used = used;
	for (*done = 0; !err && *done < count && clock_ns(CLOCK_MONOTONIC) < opts->until_ns;
	     ++*done)
		err = block_add(&looking, addresses[*done],
				states && states[*done] == GLIBC_STATE_FREE);
	err = err ?: record_flush(&looking);
	heap_kinds_free(looking.kinds);
	free(looking.record);
	return err;
}
