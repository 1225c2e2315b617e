/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/graph/collector.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GENERATIONS  3u
#define SEARCH_BYTES 256u /* how far a release's state may be from the table's */
#define LINK_FLAGS   3ull
#define MAX_LIST     (1ull << 32) /* objects of one list */

static uint64_t link_at(const struct image *image, uint64_t address)
{
	return image_u64(image, address) & ~LINK_FLAGS;
}

/* Whether a circular list of {next, previous} begins here. */
static int is_list(const struct image *image, uint64_t head)
{
	uint64_t next = link_at(image, head), before = link_at(image, head + 8);

	return next && before && link_at(image, next + 8) == head && link_at(image, before) == head;
}

static int32_t number_at(const struct image *image, uint64_t address)
{
	const uint8_t *bytes = image_at(image, address, sizeof(int32_t));
	int32_t value = -1;

	if (bytes)
		memcpy(&value, bytes, sizeof(value));
	return value;
}

/*
 * Whether the state's generations are there; without the GIL their lists stay empty, if they are
 * lists.
 */
static int is_state(const struct image *image, const struct collector *collector, uint64_t state)
{
	const struct collector_offsets *at = &image->offsets.collector;
	uint32_t enabled = (uint32_t)number_at(image, state + at->enabled);
	int lists = image->offsets.build != BUILD_FREE_THREADED;

	for (unsigned int i = 0; i < GENERATIONS && lists; i++)
		if (!is_list(image, collector->young + i * at->generation_bytes))
			return 0;
	return enabled <= 1 && number_at(image, collector->young + at->threshold) >= 0 &&
	       (!lists || is_list(image, collector->permanent));
}

/*
 * 1: *out has the lists of the state at that address. Some releases of 3.13 and later align
 * generations to 4 bytes.
 */
static int state_read(const struct image *image, uint64_t state, struct collector *out)
{
	const struct collector_offsets *at = &image->offsets.collector;
	uint64_t aligned = state + (at->young + 7u) / 8 * 8;

	out->permanent = state + at->permanent;
	out->young = aligned;
	if (is_state(image, out, state))
		return 1;
	out->young = aligned - 4;
	return is_state(image, out, state);
}

/* 0: it is not where it should be. */
static uint64_t state_find(const struct image *image, uint64_t base, struct collector *out)
{
	uint64_t guess = base + image->offsets.collector.state;
	uint64_t most = image->offsets.build == BUILD_FREE_THREADED ? 0 : SEARCH_BYTES;

	for (uint64_t distance = 0; distance <= most; distance += 8) {
		if (state_read(image, guess + distance, out))
			return guess + distance;
		if (state_read(image, guess - distance, out))
			return guess - distance;
	}
	return 0;
}

static void collector_add(struct collectors *collectors, const struct image *image, uint64_t base)
{
	const struct collector_offsets *at = &image->offsets.collector;
	struct collector *out = &collectors->entries[collectors->count];
	uint64_t state = state_find(image, base, out);

	if (!state)
		return;
	out->runs = number_at(image, state + at->enabled) == 1 &&
		    number_at(image, out->young + at->threshold) > 0;
	out->kept = image_u64(image, state + at->garbage);
	collectors->count++;
}

int collectors_read(struct collectors *out, const struct image *image)
{
	uint64_t interpreter = image->interpreters;

	*out = (struct collectors){.entries = calloc(COLLECTORS_MAX, sizeof(*out->entries))};
	if (!out->entries)
		return -ENOMEM;
	if (image->offsets.version == 0x0308) {
		collector_add(out, image, image->runtime);
		return 0;
	}
	for (uint32_t i = 0; i < COLLECTORS_MAX && interpreter; i++) {
		collector_add(out, image, interpreter);
		interpreter = image_u64(image, interpreter + image->offsets.abi.interp_next);
	}
	return 0;
}

size_t collectors_off(const struct collectors *collectors)
{
	size_t off = 0;

	for (size_t i = 0; i < collectors->count; i++)
		off += !collectors->entries[i].runs;
	return off;
}

void collectors_free(struct collectors *collectors)
{
	free(collectors->entries);
	*collectors = (struct collectors){0};
}

static int list_each(const struct image *image, uint64_t head, collector_fn visit, void *context)
{
	uint64_t at = link_at(image, head);
	int got = 0;

	for (uint64_t i = 0; i < MAX_LIST && at && at != head && !got; i++) {
		got = visit(context, at + image->offsets.heap.gc_head_bytes);
		at = link_at(image, at);
	}
	return got;
}

int collector_each_frozen(const struct collector *collector, const struct image *image,
			  collector_fn visit, void *context)
{
	if (image->offsets.build == BUILD_FREE_THREADED)
		return 0;
	return list_each(image, collector->permanent, visit, context);
}

void collector_each_list(const struct collector *collector, const struct image *image,
			 collector_fn visit, void *context)
{
	uint32_t bytes = image->offsets.collector.generation_bytes;

	if (image->offsets.build == BUILD_FREE_THREADED)
		return;
	for (unsigned int i = 0; i < GENERATIONS; i++)
		list_each(image, collector->young + i * bytes, visit, context);
	list_each(image, collector->permanent, visit, context);
}
