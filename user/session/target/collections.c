/* SPDX-License-Identifier: Apache-2.0 */
#include "session/target/collections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "session/target/state.h"
#include "session/target/target.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/sorted.h"

#define EVERY_NS 900000000ull /* a client asks once a second */
#define AT_ONCE  32u
#define MOST     8u /* interpreters of a process */

#define FIND_NS 10000000000ull /* then a collector's place is looked for again */
#define WINDOW  512u           /* of a collector's state, read at once */

/* What is told, what was read for that, and where. */
struct collections_entry {
	uint32_t pid;
	struct collections told;
	uint64_t read[COLLECTIONS_KINDS][COLLECTOR_GENERATIONS];
	struct collectors collectors;
	uint64_t interpreters, found_ns; /* the newest one by then; when these were found */
};

/* Figures of which a part could not be read are not told. */
struct state_reads {
	struct space *space;
	uint64_t address; /* of the window; 0: there is none */
	uint8_t window[WINDOW];
	uint32_t failed;
};

static bool state_read(void *context, uint64_t address, void *out, size_t bytes)
{
	struct state_reads *reads = context;
	bool got = true;

	if (reads->address && address >= reads->address &&
	    address - reads->address <= WINDOW - bytes)
		memcpy(out, reads->window + (address - reads->address), bytes);
	else
		got = !space_read(reads->space, address, out, bytes);
	reads->failed += !got;
	return got;
}

static void window_read(struct state_reads *reads, uint64_t address)
{
	reads->address = space_read(reads->space, address, reads->window, WINDOW) ? 0 : address;
}

static void figures_add(struct collections *out, const struct collector_figures *figures)
{
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++) {
		const struct collector_generation *from = &figures->generations[i];

		out->sums[COLLECTIONS_DONE][i] += from->collections;
		out->sums[COLLECTIONS_FREED][i] += from->collected;
		out->sums[COLLECTIONS_UNCOLLECTABLE][i] += from->uncollectable;
		if (isnan(from->seconds))
			out->flags &= ~COLLECTIONS_TIMED;
		else
			out->sums[COLLECTIONS_NS][i] += (uint64_t)(from->seconds * 1e9);
		/* The first interpreter comes last. */
		out->count[i] = from->count;
		out->threshold[i] = from->threshold;
	}
	out->flags |= figures->collecting ? COLLECTIONS_RUNNING : 0;
	out->off += !figures->enabled || figures->generations[0].threshold <= 0;
}

/* Only interpreters that come, and none that goes, change which the newest is. 0, -ENOMEM. */
static int collectors_find(struct collections_entry *entry, const struct collector_source *source,
			   uint64_t now_ns)
{
	if (entry->collectors.count == 1 && entry->interpreters == source->interpreters &&
	    now_ns - entry->found_ns < FIND_NS)
		return 0;
	collectors_free(&entry->collectors);
	entry->interpreters = source->interpreters;
	entry->found_ns = now_ns;
	return collectors_read(&entry->collectors, source, MOST);
}

/* Its collectors now. False: they were not found, or not read as a whole. */
static bool target_look(const struct target *target, struct collections_entry *entry,
			uint64_t now_ns, struct collections *out)
{
	const struct python_runtime *runtime = &target->runtime;
	const struct collectors *collectors = &entry->collectors;
	struct state_reads reads = {.space = runtime->space};
	uint64_t interpreters;

	if (space_read_u64(runtime->space,
			   runtime->target.runtime +
				   runtime->offsets->abi.runtime_interpreters_head,
			   &interpreters))
		return false;
	struct collector_source source = collector_source_space(
		runtime->space, runtime->offsets, runtime->target.runtime, interpreters);
	int err = collectors_find(entry, &source, now_ns);

	source.read = state_read;
	source.context = &reads;
	*out = (struct collections){.time_ns = clock_ns(CLOCK_MONOTONIC),
				    .collectors = (uint32_t)collectors->count,
				    .flags = COLLECTIONS_TIMED |
					     (collectors->cut ? COLLECTIONS_MORE : 0)};
	for (size_t i = 0; !err && i < collectors->count; i++) {
		struct collector_figures figures;

		window_read(&reads, collectors->entries[i].state);
		collector_figures_read(&collectors->entries[i], &source, &figures);
		figures_add(out, &figures);
	}
	return !err && collectors->count && !reads.failed;
}

/* Adds what has come since the last look; a sum that has fallen is of fewer interpreters. */
static void entry_take(struct collections_entry *entry, const struct collections *now)
{
	struct collections told = *now;

	for (int kind = 0; kind < COLLECTIONS_KINDS; kind++)
		for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++)
			told.sums[kind][i] = entry->told.sums[kind][i] +
					     increase(entry->read[kind][i], now->sums[kind][i]);
	memcpy(entry->read, now->sums, sizeof(entry->read));
	entry->told = told;
}

static void entry_feed(struct session *session, const struct target *target,
		       const struct collections *told)
{
	struct event_collections record = {
		.header = RECORD_HEADER(EVENT_COLLECTIONS, record, told->time_ns, target->pid),
		.full = told->sums[COLLECTIONS_DONE][COLLECTOR_GENERATIONS - 1],
		.all = collections_sum(told, COLLECTIONS_DONE),
		.collected = collections_sum(told, COLLECTIONS_FREED),
	};

	session_feed(session, &record, sizeof(record));
}

static struct collections_entry *entry_of(struct session *session, const struct target *target)
{
	struct collections_entry *entry;

	while (session->collections_count <= target->index) {
		if (ARRAY_GROW(session->collections, session->collections_capacity,
			       session->collections_count))
			return NULL;
		session->collections[session->collections_count++] = (struct collections_entry){0};
	}
	entry = &session->collections[target->index];
	if (entry->pid != (uint32_t)target->pid) {
		collectors_free(&entry->collectors);
		*entry = (struct collections_entry){.pid = (uint32_t)target->pid};
	}
	return entry;
}

void collections_read(struct session *session, bool all)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	uint64_t every_ns = all ? 0 : EVERY_NS * (session->count / AT_ONCE + 1);

	for (size_t i = 0; i < session->count; i++) {
		const struct target *target = session->targets[i];
		struct collections_entry *entry;
		struct collections now;

		if (!target->begun || target->ended || target->gone ||
		    !target->runtime.version_hex || !target->runtime.space)
			continue;
		entry = entry_of(session, target);
		if (!entry || (entry->told.time_ns && entry->told.time_ns + every_ns > now_ns) ||
		    !target_look(target, entry, now_ns, &now))
			continue;
		entry_take(entry, &now);
		entry_feed(session, target, &entry->told);
	}
}

const struct collections *collections_of(const struct session *session, size_t process,
					 uint32_t pid)
{
	const struct collections_entry *entry =
		process < session->collections_count ? &session->collections[process] : NULL;

	return entry && entry->pid == pid && entry->told.time_ns ? &entry->told : NULL;
}

void collections_free(struct session *session)
{
	for (size_t i = 0; i < session->collections_count; i++)
		collectors_free(&session->collections[i].collectors);
	free(session->collections);
}
