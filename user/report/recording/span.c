/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/span.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/not_seen.h"
#include "report/recording/recording_load.h"
#include "report/recording/stack_list.h"
#include "snapshot/ages.h"
#include "snapshot/group/group.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/json.h"
#include "util/sorted.h"

#define NOT_SEEN "Not seen"

/* --- tables ----------------------------------------------------------------------------------- */

struct amount {
	uint64_t size, count;
};

/* Of one stack, or of all. allocated: since the trace began, alive or not. */
struct stack_sums {
	struct amount alive, allocated;
};

/* A snapshot by stack. */
struct stack_table {
	struct stack_sums *stacks; /* by their numbers in the list; there may be more stacks */
	size_t count, capacity;
	struct stack_sums total;
	bool allocated_known, is_estimate;
};

/* A snapshot at which ranges begin and end. */
struct stop {
	struct recording_moment at, peak_at;
	size_t before;          /* snapshots, of those that were read */
	struct stack_table own; /* without what a process has of its parent's: of no allocation */
	struct stack_sums total;
	struct snapshot *peak; /* of it and those until the next stop; NULL: that is reached */
	struct stack_table peak_table;
	uint64_t peak_bytes;
	bool ages_known;
	uint32_t emptied;
	uint64_t attach_peak; /* of one process, since the attach; 0: unknown */
	char *not_seen;       /* what the figures until then lack: lines, then an empty one */
};

struct stops {
	struct recording *recording; /* has advanced to the last one */
	struct stack_list list;
	struct stop *items;
	size_t reached;
	/*
	 * Of the last one, with ages: its blocks by age, in its peak, whose tables have been read
	 * before; so many of the youngest traces are in the table. Ranges that end there are passed
	 * on in the order in which they grow.
	 */
	struct snapshot *young; /* borrowed; NULL: not asked for yet */
	size_t young_count;
	struct stack_table young_table;
};

static void table_free(struct stack_table *table)
{
	free(table->stacks);
	*table = (struct stack_table){0};
}

static void amount_add(struct amount *sum, uint64_t size, uint64_t count)
{
	sum->size += size;
	sum->count += count;
}

static int entry_take(struct stops *stops, const struct statistic *entry, struct stack_table *table)
{
	const struct statistic_sums *allocated = &entry->extra.allocated;
	uint32_t number;
	int err = stack_list_find(&stops->list, entry->snapshot, entry->traceback, &number);

	while (!err && table->count <= number) {
		err = ARRAY_GROW(table->stacks, table->capacity, table->count);
		if (!err)
			table->stacks[table->count++] = (struct stack_sums){0};
	}
	if (err)
		return err;
	amount_add(&table->stacks[number].alive, entry->size, entry->count);
	amount_add(&table->stacks[number].allocated, allocated->size, allocated->count);
	return 0;
}

static const struct filters own = {.no_inherited = 1};

/* Adds to a table, that is empty at first. 0, -errno; table_free() releases it in either case. */
static int table_add(struct stops *stops, const struct snapshot *snapshot,
		     const struct filters *filters, struct stack_table *out)
{
	struct statistics_opts opts = {.by = GROUP_TRACEBACK, .filters = filters};
	struct statistics all;

	if (snapshot_knows(snapshot, EXTRA_ALLOCATED))
		opts.sort = SORT_ALLOCATED; /* it lists what holds nothing, too */
	int err = statistics_compute(snapshot, &opts, &all);
	if (err)
		return err;
	amount_add(&out->total.alive, all.total_size, all.total_count);
	amount_add(&out->total.allocated, all.extra.allocated.size, all.extra.allocated.count);
	out->allocated_known = all.allocated_known;
	out->is_estimate = all.sampled;
	for (size_t i = 0; !err && i < all.count; i++)
		err = entry_take(stops, &all.entries[i], out);
	statistics_free(&all);
	return err;
}

static struct stack_sums sums_of(const struct stack_table *table, size_t number)
{
	return number < table->count ? table->stacks[number] : (struct stack_sums){0};
}

/* --- reading ---------------------------------------------------------------------------------- */

static void stops_free(struct stops *stops)
{
	for (size_t i = 0; i < stops->reached; i++) {
		table_free(&stops->items[i].own);
		table_free(&stops->items[i].peak_table);
		snapshot_free(stops->items[i].peak);
		free(stops->items[i].not_seen);
	}
	free(stops->items);
	stack_list_free(&stops->list);
	recording_free(stops->recording);
}

/* Takes the snapshot that was advanced to as the highest since the stop if it is. */
static int peak_take(struct stops *stops, struct stop *stop, const struct recording_moment *at)
{
	const struct recording_choice all = {.layer = -1};
	int taken = recording_heavier(stops->recording, &all, &stop->peak_bytes, &stop->peak);

	if (taken > 0)
		stop->peak_at = *at;
	return taken < 0 ? taken : 0;
}

/* 0, -ENOMEM */
static int not_seen_read(const struct snapshot *snapshot, char **text)
{
	const struct not_seen_opts opts = {.title = NOT_SEEN, .whole = 1};
	size_t bytes;
	FILE *out = open_memstream(text, &bytes);

	if (!out)
		return -ENOMEM;
	not_seen_print(out, snapshot, &opts);
	if (fclose(out))
		return -ENOMEM;
	for (char *end = *text; (end = strchr(end, '\n'));)
		*end++ = '\0';
	return 0;
}

/* What is known of a stop when it is the highest one since itself. */
static int stop_read(struct stops *stops, struct stop *stop)
{
	const struct snapshot_meta *meta = &stop->peak->meta;
	int err = table_add(stops, stop->peak, &own, &stop->own)
			  ?: table_add(stops, stop->peak, NULL, &stop->peak_table)
			  ?: not_seen_read(stop->peak, &stop->not_seen);

	stop->total = stop->peak_table.total;
	stop->ages_known = meta->ages;
	stop->emptied = meta->emptied;
	stop->attach_peak = stop->peak->process_count ? 0 : meta->peak_bytes;
	return err;
}

/* The next one is reached: the highest since this one is known. */
static int stop_close(struct stops *stops, struct stop *stop)
{
	int err = 0;

	if (stop->peak_at.index != stop->at.index) {
		table_free(&stop->peak_table);
		err = table_add(stops, stop->peak, NULL, &stop->peak_table);
	}
	snapshot_free(stop->peak);
	stop->peak = NULL;
	return err;
}

/* Passes on the ranges that end at the last stop. 0, or what take() returns. */
static int spans_take(struct stops *stops, recording_span_fn take, void *context)
{
	const struct stop *last = &stops->items[stops->reached - 1], *peak = last;
	int err = 0;

	for (size_t i = stops->reached; i-- && !err;) {
		const struct stop *first = &stops->items[i];

		/* The first of several. */
		if (first->peak_bytes >= peak->peak_bytes)
			peak = first;
		const struct recording_span span = {.count = last->before - first->before + 1,
						    .from_at = first->at,
						    .to_at = last->at,
						    .peak_at = peak->peak_at,
						    .from = first,
						    .to = last,
						    .peak = peak,
						    .stops = stops};
		err = take(&span, context);
	}
	stops->young = NULL;
	table_free(&stops->young_table);
	return err;
}

/* The snapshot that was advanced to, `before` others since the first one that was read. */
static int moment_take(struct stops *stops, const struct recording_moment *at, size_t before,
		       bool is_stop)
{
	struct stop *stop = stops->items + stops->reached;
	int err = is_stop && stops->reached ? stop_close(stops, stop - 1) : 0;

	if (err || (!is_stop && !stops->reached))
		return err;
	if (!is_stop)
		return peak_take(stops, stop - 1, at);
	*stop = (struct stop){.at = *at, .before = before};
	stops->reached++;
	return peak_take(stops, stop, at) ?: stop_read(stops, stop);
}

int recording_spans_read(struct infile *file, const size_t *numbers, size_t count,
			 recording_span_fn take, void *context)
{
	struct stops stops = {.items = array_new(count, sizeof(*stops.items))};
	struct recording_moment at;
	size_t before = 0;
	int more = 1, err = stops.items ? stack_list_init(&stops.list)
						  ?: recording_new(&stops.recording, file)
					: -ENOMEM;

	while (!err && stops.reached < count &&
	       (more = recording_next(stops.recording, UINT64_MAX, &at)) > 0) {
		bool is_stop = at.index == numbers[stops.reached];

		err = moment_take(&stops, &at, before++, is_stop);
		if (!err && is_stop)
			err = spans_take(&stops, take, context);
	}
	err = err ?: more < 0 ? more : 0;
	if (!err && stops.reached < count)
		err = error_set(-ERANGE, "the recording has no snapshot %zu",
				numbers[stops.reached]);
	stops_free(&stops);
	return err;
}

/* --- figures ---------------------------------------------------------------------------------- */

struct span_figures {
	struct amount alive, freed, peak;
};

struct span_sums {
	struct span_figures *stacks; /* by their numbers */
	size_t count;
	struct span_figures total; /* but for the peak */
	struct amount allocated;
	bool allocated_known;
};

static struct amount amount_more(const struct amount *now, const struct amount *before)
{
	return (struct amount){increase(before->size, now->size),
			       increase(before->count, now->count)};
}

/* What was allocated and is not there more; estimates may contradict each other. */
static struct amount amount_gone(const struct amount *allocated, const struct amount *now,
				 const struct amount *before)
{
	return (struct amount){increase(now->size, allocated->size + before->size),
			       increase(now->count, allocated->count + before->count)};
}

static int age_compare(const void *a, const void *b)
{
	const struct snapshot_trace *first = a, *second = b;

	return CMP(first->age, second->age);
}

/* Ages of blocks that are not older than the range is long. */
static struct ages ages_of(const struct recording_moment *from, const struct recording_moment *to)
{
	struct ages ages = AGES_ALL;

	ages.most_ns = to->since_ns - from->since_ns;
	return ages;
}

/*
 * The ages of blocks of a process that has ended, or shuts down, are of that moment; here they are
 * of the snapshot.
 */
static void ages_advance(struct snapshot *snapshot, const struct recording_moment *at)
{
	for (size_t i = 0; i < snapshot->trace_count; i++) {
		struct snapshot_trace *trace = &snapshot->traces[i];
		const struct snapshot_meta *process = snapshot_process(snapshot, trace->process);
		uint64_t since =
			increase(process->taken_realtime_ns, at->realtime_ns) / AGE_UNIT_NS;

		if (trace->age != AGE_UNKNOWN && trace->age != AGE_BEFORE &&
		    strcmp(process->moment, "running") != 0)
			trace->age = (uint32_t)lesser(trace->age + since, AGE_BEFORE - 1);
	}
}

/* Without what is older than the first of all ranges. */
static int young_open(struct stops *stops)
{
	const struct stop *last = &stops->items[stops->reached - 1];
	const struct ages longest = ages_of(&stops->items[0].at, &last->at);
	ages_advance(last->peak, &last->at);
	int err = ages_keep(last->peak, &longest);
	if (err)
		return err;
	stops->young = last->peak;
	stops->young_count = 0;
	if (stops->young->trace_count)
		qsort(stops->young->traces, stops->young->trace_count,
		      sizeof(*stops->young->traces), age_compare);
	return 0;
}

/* What is alive of the range, with ages, is in stops->young_table then. 0, -errno. */
static int young_read(const struct recording_span *span)
{
	const struct ages ages = ages_of(&span->from_at, &span->to_at);
	struct stops *stops = span->stops;
	int err = stops->young ? 0 : young_open(stops);

	if (err)
		return err;
	struct snapshot added = *stops->young;
	size_t count = stops->young_count;
	while (count < added.trace_count && ages_want(&ages, added.traces[count].age, 0))
		count++;
	if (count == stops->young_count)
		return 0;
	added.traces += stops->young_count;
	added.trace_count = count - stops->young_count;
	stops->young_count = count;
	return table_add(stops, &added, &own, &stops->young_table);
}

static struct span_figures figures_of(const struct recording_span *span,
				      const struct span_sums *sums, size_t number)
{
	struct stack_sums now = sums_of(&span->to->own, number),
			  before = sums_of(&span->from->own, number);
	struct amount allocated = amount_more(&now.allocated, &before.allocated);

	return (struct span_figures){
		.alive = span->to->ages_known ? sums_of(&span->stops->young_table, number).alive
					      : amount_more(&now.alive, &before.alive),
		.freed = sums->allocated_known ? amount_gone(&allocated, &now.alive, &before.alive)
					       : amount_more(&before.alive, &now.alive),
		.peak = sums_of(&span->peak->peak_table, number).alive};
}

/* 0, -errno; the caller frees sums->stacks in either case. */
static int sums_make(struct span_sums *sums, const struct recording_span *span)
{
	const struct stop *from = span->from, *to = span->to;
	int err = to->ages_known ? young_read(span) : 0;

	*sums = (struct span_sums){
		.count = span->stops->list.count,
		.stacks = array_new(span->stops->list.count + 1, sizeof(*sums->stacks)),
		.allocated = amount_more(&to->total.allocated, &from->total.allocated),
		.allocated_known = to->own.allocated_known && from->own.allocated_known};
	err = err ?: sums->stacks ? 0 : -ENOMEM;
	for (size_t i = 0; !err && i < sums->count; i++) {
		struct span_figures *stack = &sums->stacks[i], *total = &sums->total;

		*stack = figures_of(span, sums, i);
		amount_add(&total->alive, stack->alive.size, stack->alive.count);
		amount_add(&total->freed, stack->freed.size, stack->freed.count);
	}
	/* Where they are known as a whole, roundings of stacks do not add up. */
	if (to->ages_known)
		sums->total.alive = span->stops->young_table.total.alive;
	if (sums->allocated_known)
		sums->total.freed =
			amount_gone(&sums->allocated, &to->own.total.alive, &from->own.total.alive);
	return err;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void amount_json(struct json *json, const struct amount *amount)
{
	json_numbers(json, {"size", amount->size}, {"count", amount->count});
}

static void moment_json(struct json *json, const char *key, const struct recording_moment *moment,
			const struct amount *amount)
{
	json_open(json, key, '{');
	json_unsigned(json, "snapshot", moment->index);
	json_fixed(json, "time", (double)moment->since_ns / 1e9, 3);
	amount_json(json, amount);
	json_close(json, '}');
}

/* is_least: it is a lower bound. */
static void part_json(struct json *json, const char *key, const struct amount *amount,
		      bool is_least)
{
	json_open(json, key, '{');
	amount_json(json, amount);
	json_bool(json, "least", is_least);
	json_close(json, '}');
}

/* The first line begins with the title. */
static void not_seen_json(struct json *json, const char *lines)
{
	json_open(json, "not_seen", '[');
	for (const char *line = lines; *line; line += strlen(line) + 1) {
		const char *text = line == lines ? line + strlen(NOT_SEEN ":") : line;

		text += strspn(text, " ");
		if (*text)
			json_text(json, NULL, text);
	}
	json_close(json, ']');
}

static void head_json(struct json *json, const struct recording_span *span,
		      const struct span_sums *sums)
{
	const struct stop *from = span->from, *to = span->to;

	json_unsigned(json, "snapshots", span->count);
	moment_json(json, "from", &span->from_at, &from->total.alive);
	moment_json(json, "to", &span->to_at, &to->total.alive);
	moment_json(json, "peak", &span->peak_at, &span->peak->peak_table.total.alive);
	/* A peak since the attach that rose was in the range, maybe between two snapshots. */
	if (from->attach_peak && to->attach_peak > from->attach_peak)
		json_unsigned(json, "peak_between", to->attach_peak);
	else
		json_none(json, "peak_between");
	part_json(json, "alive", &sums->total.alive, !to->ages_known);
	part_json(json, "freed", &sums->total.freed, !sums->allocated_known);
	if (sums->allocated_known)
		part_json(json, "allocated", &sums->allocated, false);
	else
		json_none(json, "allocated");
	json_bool(json, "estimated", from->own.is_estimate || to->own.is_estimate);
	json_bool(json, "emptied", to->emptied > from->emptied);
	not_seen_json(json, to->not_seen);
}

struct stack_rank {
	uint64_t weight;
	uint32_t number;
};

static int ranked_compare(const void *a, const void *b)
{
	const struct stack_rank *first = a, *second = b;

	return CMP(second->weight, first->weight) ?: CMP(first->number, second->number);
}

/*
 * The numbers of the stacks that have figures, those with the highest first. NULL: -ENOMEM. Caller
 * frees.
 */
static uint32_t *stacks_rank(const struct span_sums *sums, size_t *count)
{
	struct stack_rank *ranked = array_new(sums->count + 1, sizeof(*ranked));
	uint32_t *numbers = array_new(sums->count + 1, sizeof(*numbers));

	*count = 0;
	for (size_t i = 0; ranked && i < sums->count; i++) {
		const struct span_figures *figures = &sums->stacks[i];
		uint64_t most = figures->alive.size > figures->freed.size ? figures->alive.size
									  : figures->freed.size;

		most = figures->peak.size > most ? figures->peak.size : most;
		/* Blocks of 0 bytes count. */
		if (most || figures->peak.count || figures->alive.count || figures->freed.count)
			ranked[(*count)++] = (struct stack_rank){most, (uint32_t)i};
	}
	if (ranked && numbers) {
		qsort(ranked, *count, sizeof(*ranked), ranked_compare);
		for (size_t i = 0; i < *count; i++)
			numbers[i] = ranked[i].number;
	} else {
		free(numbers);
		numbers = NULL;
	}
	free(ranked);
	return numbers;
}

/* {alive, freed, peak} of each, in bytes and blocks */
static void figures_json(struct json *json, const struct span_sums *sums, const uint32_t *numbers,
			 size_t count)
{
	json_open(json, "figures", '[');
	for (size_t i = 0; i < count; i++) {
		const struct span_figures *figures = &sums->stacks[numbers[i]];
		const struct amount *parts[] = {&figures->alive, &figures->freed, &figures->peak};

		for (size_t j = 0; j < ARRAY_SIZE(parts); j++) {
			json_unsigned(json, NULL, parts[j]->size);
			json_unsigned(json, NULL, parts[j]->count);
		}
	}
	json_close(json, ']');
}

int recording_span_json(struct json *json, const struct recording_span *span, size_t stacks_max)
{
	struct span_sums sums = {0};
	size_t all = 0;
	int err = sums_make(&sums, span);
	_cleanup_free_ uint32_t *numbers = err ? NULL : stacks_rank(&sums, &all);

	err = err ?: numbers ? 0 : -ENOMEM;
	if (!err) {
		size_t count = lesser(all, stacks_max);

		json_open(json, NULL, '{');
		head_json(json, span, &sums);
		err = stack_list_json(json, &span->stops->list, numbers, count);
		figures_json(json, &sums, numbers, count);
		json_unsigned(json, "stacks_left_out", all - count);
		json_end(json);
	}
	free(sums.stacks);
	return err;
}
