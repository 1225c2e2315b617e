/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap gc: what the cyclic garbage collector has done, and what it does meanwhile (-d). */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cmd/heap/heap_choice.h"
#include "inspect/dump/collector_look.h"
#include "proc/memory.h"
#include "runtime/cpython/version.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/sorted.h"
#include "util/stream.h"
#include "util/text.h"

#define LOOK_NS 1000000u /* between two looks at a collector */

/* What a collector did while it was watched. */
struct watched {
	struct collector_figures first, last;
	uint64_t looks, collecting; /* looks; those at which it ran */
	uint64_t longest_ns;        /* from the first to the last of such looks in a row */
	uint64_t most;              /* objects freed between two looks */
	uint64_t began_ns;          /* of the row; 0: it did not run at the last look */
};

/* What was asked of one process. */
struct gc_answer {
	struct collector_source source;
	struct collectors collectors;
	struct watched *watched; /* by collector */
	double seconds;          /* for which they were watched */
	bool lists;              /* the objects of each generation are there to be counted */
};

/* --- watching it ------------------------------------------------------------------------------ */

static uint64_t collected_of(const struct collector_figures *figures)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < COLLECTOR_GENERATIONS; i++)
		sum += figures->generations[i].collected;
	return sum;
}

static void watched_add(struct watched *watched, const struct collector_figures *now,
			uint64_t now_ns)
{
	uint64_t before = collected_of(&watched->last), after = collected_of(now);

	if (!watched->looks++)
		watched->first = *now;
	else if (after > before && after - before > watched->most)
		watched->most = after - before;
	watched->last = *now;
	watched->collecting += now->collecting;
	if (now->collecting && !watched->began_ns)
		watched->began_ns = now_ns;
	if (now->collecting && now_ns - watched->began_ns > watched->longest_ns)
		watched->longest_ns = now_ns - watched->began_ns;
	if (!now->collecting)
		watched->began_ns = 0;
}

/* Looks at all collectors for that long, or until their process has ended. */
static void watch(const struct heap_graph *heap, const struct collectors *collectors,
		  uint64_t duration_ns, struct watched *watched)
{
	const struct collector_source live =
		collector_source_live(heap->space, &heap->capture.image);
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC), end_ns = now_ns + duration_ns, word;

	while (now_ns < end_ns && !space_read_u64(heap->space, live.runtime, &word)) {
		struct timespec pause = {.tv_nsec = LOOK_NS};

		for (size_t i = 0; i < collectors->count; i++) {
			struct collector_figures now;

			collector_figures_read(&collectors->entries[i], &live, &now);
			watched_add(&watched[i], &now, now_ns);
		}
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		now_ns = clock_ns(CLOCK_MONOTONIC);
	}
}

/* --- printing it ------------------------------------------------------------------------------ */

static void generations_text(const struct collector_figures *figures, bool lists)
{
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++) {
		const struct collector_generation *at = &figures->generations[i];

		printf("  generation %u: ", i);
		if (lists)
			printf("objects=%s, ", COUNT_TEXT(at->objects));
		printf("count=%d of %d; collections=%s, freed=%s", at->count, at->threshold,
		       COUNT_TEXT(at->collections), COUNT_TEXT(at->collected));
		if (at->uncollectable)
			printf(", uncollectable=%s", COUNT_TEXT(at->uncollectable));
		if (!isnan(at->seconds))
			printf(", in %.3g s", at->seconds);
		putchar('\n');
	}
	if (lists)
		printf("  frozen (gc.freeze()): objects=%s\n", COUNT_TEXT(figures->frozen));
}

static double share(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void watched_text(const struct watched *watched, double seconds)
{
	uint64_t collections[COLLECTOR_GENERATIONS], sum = 0;
	double spent = 0;

	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++) {
		const struct collector_generation *first = &watched->first.generations[i],
						  *last = &watched->last.generations[i];

		collections[i] = increase(first->collections, last->collections);
		sum += collections[i];
		spent += last->seconds - first->seconds; /* NAN if it is not known */
	}
	printf("  in %.1f s: collections=%s", seconds, COUNT_TEXT(sum));
	if (sum)
		printf(" (%" PRIu64 " + %" PRIu64 " + %" PRIu64 "), freed=%s, at most %s in a ms",
		       collections[0], collections[1], collections[2],
		       COUNT_TEXT(increase(collected_of(&watched->first),
					   collected_of(&watched->last))),
		       COUNT_TEXT(watched->most));
	printf("\n  it ran %.1f %% of the time",
	       isnan(spent) || seconds <= 0 ? share(watched->collecting, watched->looks)
					    : 100 * spent / seconds);
	if (isnan(spent))
		printf(", seen at %s of %s looks", COUNT_TEXT(watched->collecting),
		       COUNT_TEXT(watched->looks));
	if (watched->longest_ns)
		printf("; once for %.0f ms", (double)watched->longest_ns / 1e6);
	putchar('\n');
}

static void collector_text(const struct gc_answer *answer, size_t number,
			   const struct collector_figures *figures)
{
	const struct collector *collector = &answer->collectors.entries[number];
	const struct watched *watched = &answer->watched[number];

	if (answer->collectors.count > 1)
		printf("Collector %zu: ", number + 1);
	else
		fputs("Collector: ", stdout);
	puts(collector->runs    ? figures->collecting ? "on, and runs now" : "on"
	     : figures->enabled ? "on, but its threshold is 0: it runs when the program asks"
				: "off: it runs when the program asks (gc.disable())");
	generations_text(figures, answer->lists);
	if (watched->looks)
		watched_text(watched, answer->seconds);
}

static void generations_json(struct json *json, const struct collector_figures *figures, bool lists)
{
	json_open(json, "generations", '[');
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++) {
		const struct collector_generation *at = &figures->generations[i];

		json_open(json, NULL, '{');
		if (lists)
			json_unsigned(json, "objects", at->objects);
		json_signed(json, "count", at->count);
		json_signed(json, "threshold", at->threshold);
		json_numbers(json, {"collections", at->collections}, {"collected", at->collected},
			     {"uncollectable", at->uncollectable});
		if (!isnan(at->seconds))
			json_fixed(json, "seconds", at->seconds, 6);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void watched_json(struct json *json, const struct watched *watched, double seconds)
{
	json_open(json, "watched", '{');
	json_fixed(json, "seconds", seconds, 3);
	json_open(json, "collections", '[');
	for (unsigned int i = 0; i < COLLECTOR_GENERATIONS; i++)
		json_unsigned(json, NULL,
			      increase(watched->first.generations[i].collections,
				       watched->last.generations[i].collections));
	json_close(json, ']');
	json_numbers(json,
		     {"collected",
		      increase(collected_of(&watched->first), collected_of(&watched->last))},
		     {"most_collected", watched->most}, {"looks", watched->looks},
		     {"looks_collecting", watched->collecting});
	json_fixed(json, "longest_seconds", (double)watched->longest_ns / 1e9, 3);
	json_close(json, '}');
}

static void collector_json(struct json *json, const struct gc_answer *answer, size_t number,
			   const struct collector_figures *figures)
{
	json_open(json, NULL, '{');
	json_bool(json, "enabled", figures->enabled);
	json_bool(json, "runs", answer->collectors.entries[number].runs);
	json_bool(json, "collecting", figures->collecting);
	if (answer->lists)
		json_unsigned(json, "frozen", figures->frozen);
	generations_json(json, figures, answer->lists);
	if (answer->watched[number].looks)
		watched_json(json, &answer->watched[number], answer->seconds);
	json_close(json, '}');
}

static void head_print(const struct heap_graph *heap, struct json *json)
{
	const struct image *image = &heap->capture.image;
	char version[VERSION_TEXT];

	if (!json) {
		heap_graph_head(heap);
		return;
	}
	json_open(json, NULL, '{');
	json_unsigned(json, "pid", image->pid);
	json_text(json, "name", image->name);
	json_text(json, "python_version", version_text(version, image->version_hex));
	json_open(json, "collectors", '[');
}

static void foot_print(const struct heap_graph *heap, const struct gc_answer *answer,
		       struct json *json)
{
	if (json) {
		json_close(json, ']');
		json_end(json);
		return;
	}
	if (!answer->collectors.count)
		puts("Not seen: the state of the collector, which was not found");
	else if (heap->capture.image.offsets.build == BUILD_FREE_THREADED)
		puts("Not seen: objects of each generation, as a build without the GIL has no "
		     "lists of them");
	else if (!answer->lists)
		puts("Not seen: objects of each generation, as the heap is too large to be "
		     "copied");
}

static void answer_print(const struct heap_graph *heap, const struct gc_answer *answer,
			 struct json *json)
{
	head_print(heap, json);
	for (size_t i = 0; i < answer->collectors.count; i++) {
		const struct collector *collector = &answer->collectors.entries[i];
		struct collector_figures figures;

		collector_figures_read(collector, &answer->source, &figures);
		if (answer->lists)
			collector_objects_count(collector, &heap->capture.image, &figures);
		if (json)
			collector_json(json, answer, i, &figures);
		else
			collector_text(answer, i, &figures);
	}
	foot_print(heap, answer, json);
}

int heap_gc_print(const struct heap_choice *choice, const struct heap_graph *heap)
{
	const struct image *image = &heap->capture.image;
	struct gc_answer answer = {
		.source = image->count ? collector_source_of(image)
				       : collector_source_live(heap->space, image),
		.lists = image->count && image->offsets.build != BUILD_FREE_THREADED};
	uint64_t began_ns;
	int err = collectors_read(&answer.collectors, &answer.source, COLLECTORS_MAX);

	answer.watched = calloc(answer.collectors.count + 1, sizeof(*answer.watched));
	if (!answer.watched)
		err = -ENOMEM;
	began_ns = clock_ns(CLOCK_MONOTONIC);
	if (!err && choice->duration_ns)
		watch(heap, &answer.collectors, choice->duration_ns, answer.watched);
	answer.seconds = (double)(clock_ns(CLOCK_MONOTONIC) - began_ns) / 1e9;
	if (!err)
		answer_print(heap, &answer, choice->json);
	free(answer.watched);
	collectors_free(&answer.collectors);
	return err ?: stream_flush(stdout);
}
