/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/collector_state.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define SEARCH_BYTES 256u /* how far a release's state may be from the table's */
#define LINK_FLAGS   3ull
#define SECONDS_MAX  1e9 /* of all collections: more is none */

static bool space_take(void *context, uint64_t address, void *out, size_t bytes)
{
	return !space_read(context, address, out, bytes);
}

struct collector_source collector_source_space(struct space *space,
					       const struct python_offsets *offsets,
					       uint64_t runtime, uint64_t interpreters)
{
	return (struct collector_source){.read = space_take,
					 .context = space,
					 .offsets = offsets,
					 .runtime = runtime,
					 .interpreters = interpreters};
}

/* The word at address; 0 if it is not there. */
static uint64_t word_of(const struct collector_source *source, uint64_t address)
{
	uint64_t value;

	return source->read(source->context, address, &value, sizeof(value)) ? value : 0;
}

uint64_t collector_link(const struct collector_source *source, uint64_t address)
{
	return word_of(source, address) & ~LINK_FLAGS;
}

/* Whether a circular list of {next, previous} begins here. */
static bool is_list(const struct collector_source *source, uint64_t head)
{
	uint64_t next = collector_link(source, head), before = collector_link(source, head + 8);

	return next && before && collector_link(source, next + 8) == head &&
	       collector_link(source, before) == head;
}

static int32_t number_of(const struct collector_source *source, uint64_t address)
{
	int32_t value;

	return source->read(source->context, address, &value, sizeof(value)) ? value : -1;
}

/*
 * Whether the state's generations are there, of whose lists so many are in a change; without the
 * GIL their lists stay empty, if they are lists.
 */
static bool is_state(const struct collector_source *source, const struct collector *collector,
		     uint64_t state, unsigned int changing)
{
	const struct collector_offsets *at = &source->offsets->collector;
	uint32_t enabled = (uint32_t)number_of(source, state + at->enabled);
	unsigned int broken = 0;

	if (enabled > 1 || number_of(source, collector->young + at->threshold) < 0)
		return 0;
	if (source->offsets->build == BUILD_FREE_THREADED)
		return 1;
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++)
		broken += !is_list(source, collector->young + i * at->generation_bytes);
	return broken <= changing && is_list(source, collector->permanent);
}

/*
 * 1: *out has the lists of the state at that address. Some releases of 3.13 and later align
 * generations to 4 bytes.
 */
static int state_read(const struct collector_source *source, uint64_t state, unsigned int changing,
		      struct collector *out)
{
	const struct collector_offsets *at = &source->offsets->collector;
	uint64_t aligned = state + (at->young + 7u) / 8 * 8;

	out->permanent = state + at->permanent;
	out->young = aligned;
	if (is_state(source, out, state, changing))
		return 1;
	out->young = aligned - 4;
	return is_state(source, out, state, changing);
}

static uint64_t state_search(const struct collector_source *source, uint64_t base,
			     unsigned int changing, struct collector *out)
{
	uint64_t guess = base + source->offsets->collector.state;
	uint64_t most = source->offsets->build == BUILD_FREE_THREADED ? 0 : SEARCH_BYTES;

	for (uint64_t distance = 0; distance <= most; distance += 8) {
		if (state_read(source, guess + distance, changing, out))
			return guess + distance;
		if (state_read(source, guess - distance, changing, out))
			return guess - distance;
	}
	return 0;
}

/*
 * 0: it is not where it should be. A process that runs adds to the youngest list; while it
 * collects, the links back in the list of that generation are something else.
 */
static uint64_t state_find(const struct collector_source *source, uint64_t base,
			   struct collector *out)
{
	return state_search(source, base, 0, out) ?: state_search(source, base, 1, out);
}

static void collector_add(struct collectors *collectors, const struct collector_source *source,
			  uint64_t base)
{
	const struct collector_offsets *at = &source->offsets->collector;
	struct collector *out = &collectors->entries[collectors->count];
	uint64_t state = state_find(source, base, out);

	if (!state)
		return;
	out->state = state;
	out->runs = number_of(source, state + at->enabled) == 1 &&
		    number_of(source, out->young + at->threshold) > 0;
	out->kept = word_of(source, state + at->garbage);
	collectors->count++;
}

int collectors_read(struct collectors *out, const struct collector_source *source, uint32_t most)
{
	uint64_t interpreter = source->interpreters;

	*out = (struct collectors){.entries = calloc(most, sizeof(*out->entries))};
	if (!out->entries)
		return -ENOMEM;
	if (source->offsets->version == 0x0308) {
		collector_add(out, source, source->runtime);
		return 0;
	}
	for (uint32_t i = 0; i < most && interpreter; i++) {
		collector_add(out, source, interpreter);
		interpreter = word_of(source, interpreter + source->offsets->abi.interp_next);
	}
	out->cut = interpreter != 0;
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

/* A number that grows; what cannot be one is 0. */
static uint64_t total_of(const struct collector_source *source, uint64_t address)
{
	uint64_t value = word_of(source, address);

	return value <= INT64_MAX ? value : 0;
}

/* The entry of the last collection in the ring at *at, whose index is at that offset of it. */
static uint64_t ring_last(const struct collector_source *source, uint64_t *at, uint16_t index_at)
{
	uint32_t bytes = source->offsets->collector.statistics_bytes;
	uint64_t ring = *at;
	uint8_t index;

	*at += (index_at + 8u) / 8 * 8;
	return source->read(source->context, ring + index_at, &index, 1) &&
			       (index + 1u) * bytes <= index_at
		       ? ring + index * bytes
		       : 0;
}

/* Of each generation the address of its struct gc_generation_stats; 0: not found. */
static void statistics_find(const struct collector *collector,
			    const struct collector_source *source,
			    uint64_t out[COLLECTOR_GENERATIONS])
{
	const struct collector_offsets *offsets = &source->offsets->collector;
	uint64_t at = collector->state + offsets->statistics;

	if (offsets->rings)
		at = word_of(source, at);
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++)
		out[i] = !at              ? 0
			 : offsets->rings ? ring_last(source, &at,
						      i ? offsets->old_ring : offsets->young_ring)
					  : at + i * offsets->statistics_bytes;
}

void collector_figures_read(const struct collector *collector,
			    const struct collector_source *source, struct collector_figures *out)
{
	const struct collector_offsets *at = &source->offsets->collector;
	uint64_t statistics[COLLECTOR_GENERATIONS];

	*out = (struct collector_figures){
		.enabled = number_of(source, collector->state + at->enabled) == 1,
		.collecting = number_of(source, collector->state + at->collecting) == 1};
	statistics_find(collector, source, statistics);
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++) {
		uint64_t head = collector->young + i * at->generation_bytes;
		uint64_t of = statistics[i];
		double seconds = NAN;

		if (of && at->duration)
			source->read(source->context, of + at->duration, &seconds, sizeof(seconds));
		out->generations[i] = (struct collector_generation){
			.threshold = number_of(source, head + at->threshold),
			.count = number_of(source, head + at->count),
			.collections = of ? total_of(source, of + at->collections) : 0,
			.collected = of ? total_of(source, of + at->collected) : 0,
			.uncollectable = of ? total_of(source, of + at->uncollectable) : 0,
			.seconds = seconds >= 0 && seconds < SECONDS_MAX ? seconds : NAN};
	}
}
