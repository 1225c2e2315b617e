/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model. A free block of such a list begins with the next pointer, at address a, which since 2.32
 * is stored as (a >> 12) ^ next. Fastbins link chunks, caches link what malloc() returned. A cache
 * is an allocated block
 *
 * 	{uint16_t counts[bins]; void *entries[bins]}
 *
 * of its thread's arena; nothing that can be found without the thread's TLS points to it. But no
 * other block has this form, with lists whose lengths are the counts and whose chunks have the
 * sizes of their bins. Since 2.42 a count is what the list still takes; bins from 64 on have chunks
 * of any size.
 */
#include "malloc/lists.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "malloc/reader.h"
#include "malloc/walk.h"

#define STEPS_MAX    (1u << 22) /* chunks that are looked at in all lists, with repeats */
#define STEPS_REREAD 16u        /* that another try of a list counts for */
#define TCACHE_BINS  76u
#define SMALL_BINS   64u
#define LENGTH_MAX   65535u /* counts are uint16_t */
#define TRIES        3
#define SHIFT        12

struct tcache {
	uint16_t counts[TCACHE_BINS];
	uint64_t entries[TCACHE_BINS];
};

static uint64_t next_reveal(const struct glibc *glibc, uint64_t at, uint64_t stored)
{
	return glibc->layout->safe_linking ? (at >> SHIFT) ^ stored : stored;
}

static uint64_t bin_bytes(unsigned int bin)
{
	return GLIBC_MIN_CHUNK + (uint64_t)bin * GLIBC_ALIGNMENT;
}

/* -EAGAIN: the limit of all steps is reached. */
static int put(struct glibc_lists *lists, uint64_t chunk, int kind)
{
	int err = lists->steps++ < STEPS_MAX ? 0 : -EAGAIN;

	if (!err)
		err = array_reserve(&lists->chunks, &lists->capacity, lists->count, 1,
				    sizeof(*lists->chunks));
	if (!err)
		lists->chunks[lists->count++] = (struct glibc_listed){chunk, (uint32_t)kind};
	return err;
}

/* A transient error of a list that changes, rather than the end of the process. */
static int is_change(int err)
{
	return err == -EFAULT || err == -ENODATA || err == -EAGAIN;
}

/* Before another try: what is cached may be what changed. */
static void reread(struct glibc_lists *lists, struct glibc *glibc)
{
	reader_clear(glibc->reader);
	lists->steps += STEPS_REREAD;
}

/* bytes: the chunks' size. -EAGAIN: the list is inconsistent. */
static int fastbin_read(struct glibc_lists *lists, struct glibc *glibc, uint64_t chunk,
			uint64_t bytes)
{
	while (chunk) {
		uint64_t words[2]; /* size, next */
		int err;

		if (chunk % GLIBC_ALIGNMENT)
			return -EAGAIN;
		err = reader_read(glibc->reader, chunk + 8, words, sizeof(words), 0);
		if (!err && (words[0] & ~(uint64_t)GLIBC_SIZE_BITS) != bytes)
			err = -EAGAIN;
		if (!err)
			err = put(lists, chunk, GLIBC_FAST);
		if (err)
			return err;
		chunk = next_reveal(glibc, chunk + GLIBC_HEADER, words[1]);
	}
	return 0;
}

int glibc_lists_fastbins(struct glibc_lists *lists, struct glibc *glibc)
{
	struct glibc_arena_offsets offsets = glibc_arena_offsets(glibc->layout);
	unsigned int bins = glibc->layout->fastbins;

	for (size_t i = 0; i < glibc->arena_count * bins; i++) {
		uint64_t at = glibc->arenas[i / bins].address + offsets.fastbins + i % bins * 8;
		size_t before = lists->count;
		uint64_t first;
		int err = -EAGAIN;

		/* A list that stays inconsistent keeps what was found of it. */
		for (int try = 0; try < TRIES && is_change(err); try++) {
			lists->count = before;
			if (try)
				reread(lists, glibc);
			err = reader_u64(glibc->reader, at, &first);
			if (!err)
				err = fastbin_read(lists, glibc, first,
						   bin_bytes((unsigned int)(i % bins)));
		}
		if (err && !is_change(err))
			return err;
		lists->cut += err != 0;
	}
	return 0;
}

/* length: of the list, 0: unknown. The same errors. */
static int entries_read(struct glibc_lists *lists, struct glibc *glibc, uint64_t block,
			unsigned int bin, uint32_t length)
{
	uint32_t count = 0;

	for (; block; count++) {
		uint64_t words[3], bytes; /* size, next, key */
		int err;

		if (block % GLIBC_ALIGNMENT || count == LENGTH_MAX)
			return -EAGAIN;
		err = reader_read(glibc->reader, block - 8, words, sizeof(words), 0);
		if (err)
			return err;
		bytes = words[0] & ~(uint64_t)GLIBC_SIZE_BITS;
		if (words[0] & GLIBC_IS_MMAPPED || !words[2] ||
		    (bin < SMALL_BINS ? bytes != bin_bytes(bin)
				      : bytes <= bin_bytes(SMALL_BINS - 1)))
			return -EAGAIN;
		err = put(lists, block - GLIBC_HEADER, GLIBC_TCACHE);
		if (err)
			return err;
		block = next_reveal(glibc, block, words[1]);
	}
	return length && count != length ? -EAGAIN : 0;
}

static int tcache_load(struct glibc *glibc, uint64_t chunk, struct tcache *tcache)
{
	uint32_t bins = glibc->layout->tcache_bins;
	uint64_t at = chunk + GLIBC_HEADER;
	int err = reader_read(glibc->reader, at, tcache->counts, bins * 2, 0);

	return err ?: reader_read(glibc->reader, at + bins * 2, tcache->entries, bins * 8, 0);
}

static int tcache_read(struct glibc_lists *lists, struct glibc *glibc, uint64_t chunk)
{
	struct tcache tcache;
	int err = tcache_load(glibc, chunk, &tcache);

	for (unsigned int i = 0; i < glibc->layout->tcache_bins && !err; i++) {
		/* Before 2.42, the count is 0 exactly if there is no entry. */
		uint32_t length = glibc->layout->tcache_slots ? 0 : tcache.counts[i];

		if (!glibc->layout->tcache_slots && !length != !tcache.entries[i])
			return -EAGAIN;
		if (tcache.entries[i] % GLIBC_ALIGNMENT)
			return -EAGAIN;
		err = entries_read(lists, glibc, tcache.entries[i], i, length);
	}
	return err;
}

/* Most blocks of this size are no caches: this looks at their first entries only. */
static int is_tcache(struct glibc *glibc, uint64_t chunk)
{
	struct tcache tcache;
	int err = tcache_load(glibc, chunk, &tcache);

	for (unsigned int i = 0; i < glibc->layout->tcache_bins && !err; i++)
		if (tcache.entries[i] % GLIBC_ALIGNMENT || tcache.entries[i] >> 47 ||
		    (!glibc->layout->tcache_slots && !tcache.counts[i] != !tcache.entries[i]))
			return 0;
	return err ? (is_change(err) ? 0 : err) : 1;
}

int glibc_lists_tcache(struct glibc_lists *lists, struct glibc *glibc, uint64_t chunk)
{
	size_t before = lists->count;
	int plausible = is_tcache(glibc, chunk), err = -EAGAIN;

	if (plausible <= 0)
		return plausible;
	for (int try = 0; try < TRIES && is_change(err); try++) {
		lists->count = before;
		if (try)
			reread(lists, glibc);
		err = tcache_read(lists, glibc, chunk);
	}
	if (err) {
		lists->count = before;
		return is_change(err) ? 0 : err;
	}
	lists->tcaches += lists->count > before;
	return lists->count > before;
}

static int listed_compare(const void *a, const void *b)
{
	const struct glibc_listed *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

void glibc_lists_sort(struct glibc_lists *lists)
{
	size_t kept = 0;

	if (lists->count)
		qsort(lists->chunks, lists->count, sizeof(*lists->chunks), listed_compare);
	for (size_t i = 0; i < lists->count; i++)
		if (!kept || lists->chunks[kept - 1].address != lists->chunks[i].address)
			lists->chunks[kept++] = lists->chunks[i];
	lists->count = kept;
}

void glibc_lists_free(struct glibc_lists *lists)
{
	free(lists->chunks);
	*lists = (struct glibc_lists){0};
}
