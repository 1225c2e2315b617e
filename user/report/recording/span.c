/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/span.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/recording/recording_load.h"
#include "report/recording/stack_list.h"
#include "snapshot/ages.h"
#include "snapshot/group/group.h"
#include "util/array.h"
#include "util/error.h"
#include "util/json.h"
#include "util/sorted.h"

/* --- reading ---------------------------------------------------------------------------------- */

/* Takes the snapshot that was advanced to as the highest if it is. */
static int peak_take(struct recording *recording, const struct recording_moment *at,
		     struct recording_span *span)
{
	const struct recording_choice all = {.layer = -1};
	int taken = recording_heavier(recording, &all, &span->peak_bytes, &span->peak);

	if (taken > 0)
		span->peak_at = *at;
	return taken < 0 ? taken : 0;
}

/* Of the last snapshot, which was advanced to, what is younger than the range is long. */
static int young_take(struct recording *recording, struct recording_span *span)
{
	struct ages ages = AGES_ALL;

	ages.most_ns = span->to_at.since_ns - span->from_at.since_ns;
	if (!span->to->meta.ages)
		return 0;
	int err = recording_snapshot(recording, &span->young);
	return err ?: ages_keep(span->young, &ages);
}

static int moment_take(struct recording *recording, const struct recording_moment *at, size_t first,
		       size_t last, struct recording_span *span)
{
	int err = 0;

	if (at->index < first)
		return 0;
	if (at->index == first) {
		span->from_at = *at;
		err = recording_snapshot(recording, &span->from);
	}
	if (!err && at->index == last) {
		span->to_at = *at;
		err = recording_snapshot(recording, &span->to) ?: young_take(recording, span);
	}
	span->count++;
	return err ?: peak_take(recording, at, span);
}

int recording_span_load(struct infile *file, size_t first, size_t last, struct recording_span *out)
{
	struct recording *recording;
	struct recording_moment at;
	int more = 1, err = 0;

	*out = (struct recording_span){0};
	if (first > last)
		return error_set(-EINVAL, "the range ends before it begins");
	err = recording_new(&recording, file);
	if (err)
		return err;
	while (!err && !out->to && (more = recording_next(recording, UINT64_MAX, &at)) > 0)
		err = moment_take(recording, &at, first, last, out);
	err = err ?: more < 0 ? more : 0;
	if (!err && !out->to)
		err = error_set(-ERANGE, "the recording has no snapshot %zu", last);
	recording_free(recording);
	if (err)
		recording_span_free(out);
	return err;
}

void recording_span_free(struct recording_span *span)
{
	snapshot_free(span->from);
	snapshot_free(span->to);
	snapshot_free(span->peak);
	snapshot_free(span->young);
	*span = (struct recording_span){0};
}

/* --- figures ---------------------------------------------------------------------------------- */

struct amount {
	uint64_t size, count;
};

/* Of one stack, or of all. */
struct span_figures {
	struct amount alive, freed, peak;
};

struct span_sums {
	struct stack_list list;
	struct span_figures *stacks; /* by its numbers */
	size_t capacity;
	struct span_figures total; /* but for the peak */
	struct amount from, to, peak, allocated;
	int allocated_known, is_estimate;
};

static int figures_find(struct span_sums *sums, const struct statistic *entry,
			struct span_figures **out)
{
	uint32_t number;
	size_t count = sums->list.count;
	int err = ARRAY_GROW(sums->stacks, sums->capacity, count);

	err = err ?: stack_list_find(&sums->list, entry->snapshot, entry->traceback, &number);
	if (err)
		return err;
	if (number == count)
		sums->stacks[number] = (struct span_figures){0};
	*out = &sums->stacks[number];
	return 0;
}

static uint64_t more(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/* What was allocated and is not there more; estimates may contradict each other. */
static uint64_t gone(uint64_t allocated, uint64_t now, uint64_t before)
{
	return more(allocated + before, now);
}

static int changes_take(struct span_sums *sums, const struct recording_span *span,
			const struct statistics *both)
{
	int err = 0;

	for (size_t i = 0; !err && i < both->count; i++) {
		const struct statistic *entry = &both->entries[i];
		const struct statistic_sums *now = &entry->extra.allocated,
					    *before = &entry->old_extra.allocated;
		struct span_figures *figures;

		err = figures_find(sums, entry, &figures);
		if (err)
			break;
		if (!span->young)
			figures->alive = (struct amount){more(entry->size, entry->old_size),
							 more(entry->count, entry->old_count)};
		figures->freed = (struct amount){more(entry->old_size, entry->size),
						 more(entry->old_count, entry->count)};
		if (both->allocated_known)
			figures->freed = (struct amount){
				gone(more(now->size, before->size), entry->size, entry->old_size),
				gone(more(now->count, before->count), entry->count,
				     entry->old_count)};
	}
	return err;
}

/* A fork allocates nothing: what a process has of its parent's is the parent's. */
static const struct filters own = {.no_inherited = 1};

/* Of the tables of both ends, as tracer diff compares them; by stack, of what was allocated. */
static int ends_take(struct span_sums *sums, const struct recording_span *span)
{
	struct statistics_opts opts = {.by = GROUP_TRACEBACK};
	struct statistics both;

	if (snapshot_knows(span->to, EXTRA_ALLOCATED) &&
	    snapshot_knows(span->from, EXTRA_ALLOCATED))
		opts.sort = SORT_ALLOCATED; /* it lists what holds nothing, too */
	int err = statistics_compare(span->to, span->from, &opts, &both);
	if (err)
		return err;
	sums->from = (struct amount){both.old_total_size, both.old_total_count};
	sums->to = (struct amount){both.total_size, both.total_count};
	sums->allocated_known = both.allocated_known;
	sums->is_estimate = both.sampled;
	sums->allocated =
		(struct amount){more(both.extra.allocated.size, both.old_extra.allocated.size),
				more(both.extra.allocated.count, both.old_extra.allocated.count)};
	statistics_free(&both);
	opts.filters = &own;
	err = statistics_compare(span->to, span->from, &opts, &both);
	if (err)
		return err;
	err = changes_take(sums, span, &both);
	/* Where it is known as a whole, roundings of stacks do not add up. */
	if (!err && both.allocated_known)
		sums->total.freed = (struct amount){
			gone(sums->allocated.size, both.total_size, both.old_total_size),
			gone(sums->allocated.count, both.total_count, both.old_total_count)};
	statistics_free(&both);
	return err;
}

/* What is alive in a snapshot, into a member of each stack's figures at that offset. */
static int alive_take(struct span_sums *sums, const struct snapshot *snapshot,
		      const struct filters *filters, size_t member, struct amount *total)
{
	const struct statistics_opts opts = {.by = GROUP_TRACEBACK, .filters = filters};
	struct statistics alive;
	int err = statistics_compute(snapshot, &opts, &alive);

	if (err)
		return err;
	*total = (struct amount){alive.total_size, alive.total_count};
	for (size_t i = 0; !err && i < alive.count; i++) {
		const struct statistic *entry = &alive.entries[i];
		struct span_figures *figures;

		err = figures_find(sums, entry, &figures);
		if (!err)
			*(struct amount *)((char *)figures + member) =
				(struct amount){entry->size, entry->count};
	}
	statistics_free(&alive);
	return err;
}

static void amount_add(struct amount *sum, const struct amount *amount)
{
	sum->size += amount->size;
	sum->count += amount->count;
}

static int sums_make(struct span_sums *sums, const struct recording_span *span)
{
	int err = ends_take(sums, span)
			  ?: alive_take(sums, span->peak, NULL, offsetof(struct span_figures, peak),
					&sums->peak);

	if (!err && span->young)
		err = alive_take(sums, span->young, &own, offsetof(struct span_figures, alive),
				 &sums->total.alive);
	for (size_t i = 0; !err && i < sums->list.count; i++) {
		if (!span->young)
			amount_add(&sums->total.alive, &sums->stacks[i].alive);
		if (!sums->allocated_known)
			amount_add(&sums->total.freed, &sums->stacks[i].freed);
	}
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
static void part_json(struct json *json, const char *key, const struct amount *amount, int is_least)
{
	json_open(json, key, '{');
	amount_json(json, amount);
	json_bool(json, "least", is_least);
	json_close(json, '}');
}

static void head_json(struct json *json, const struct recording_span *span,
		      const struct span_sums *sums)
{
	const struct snapshot_meta *from = &span->from->meta, *to = &span->to->meta;

	json_unsigned(json, "snapshots", span->count);
	moment_json(json, "from", &span->from_at, &sums->from);
	moment_json(json, "to", &span->to_at, &sums->to);
	moment_json(json, "peak", &span->peak_at, &sums->peak);
	/* A peak since the attach that rose was in the range, maybe between two snapshots. */
	if (!span->to->process_count && to->peak_bytes > from->peak_bytes && from->peak_bytes)
		json_unsigned(json, "peak_between", to->peak_bytes);
	else
		json_none(json, "peak_between");
	part_json(json, "alive", &sums->total.alive, !span->young);
	part_json(json, "freed", &sums->total.freed, !sums->allocated_known);
	if (sums->allocated_known)
		part_json(json, "allocated", &sums->allocated, 0);
	else
		json_none(json, "allocated");
	json_bool(json, "estimated", sums->is_estimate);
	json_bool(json, "emptied", to->emptied > from->emptied);
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

/* The numbers of the stacks, those with the highest figures first. NULL: -ENOMEM. Caller frees. */
static uint32_t *stacks_rank(const struct span_sums *sums)
{
	size_t count = sums->list.count;
	struct stack_rank *ranked = calloc(count + 1, sizeof(*ranked));
	uint32_t *numbers = calloc(count + 1, sizeof(*numbers));

	for (size_t i = 0; ranked && i < count; i++) {
		const struct span_figures *figures = &sums->stacks[i];
		uint64_t most = figures->alive.size > figures->freed.size ? figures->alive.size
									  : figures->freed.size;

		ranked[i] = (struct stack_rank){
			figures->peak.size > most ? figures->peak.size : most, (uint32_t)i};
	}
	if (ranked && numbers) {
		qsort(ranked, count, sizeof(*ranked), ranked_compare);
		for (size_t i = 0; i < count; i++)
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
	uint32_t *numbers = NULL;
	int err = stack_list_init(&sums.list) ?: sums_make(&sums, span);

	if (!err) {
		numbers = stacks_rank(&sums);
		err = numbers ? 0 : -ENOMEM;
	}
	if (!err) {
		size_t count = sums.list.count < stacks_max ? sums.list.count : stacks_max;

		json_open(json, NULL, '{');
		head_json(json, span, &sums);
		stack_list_json(json, &sums.list, numbers, count);
		figures_json(json, &sums, numbers, count);
		json_unsigned(json, "stacks_left_out", sums.list.count - count);
		json_end(json);
	}
	free(numbers);
	free(sums.stacks);
	stack_list_free(&sums.list);
	return err;
}
