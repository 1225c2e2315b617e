/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/estimate/reuse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "util/array.h"
#include "util/sorted.h"

/* A block is never certain to be another one. */
#define SURVIVAL_MIN 1e-6
/* Seconds in which blocks counted as alive: with fewer, an age has no rate of its own. */
#define OPEN_MIN 1e-4

/* Time since a block was shown: between windows, and in those of each group. */
struct reuse_span {
	double dark;
	double open[CALIBRATE_GROUPS];
};

/* Blocks shown at about the same time are one item: of these there are far fewer. */
#define SHOWN_STEP_NS (1ull << 20)

/* What was seen at one age. */
struct counts {
	double events[CALIBRATE_GROUPS], open[CALIBRATE_GROUPS];
};

static uint64_t age_end_ns(uint32_t age)
{
	return age + 1 < LIFE_AGES ? LIFE_AGE_NS << age : UINT64_MAX / 4;
}

const struct reuse_row *reuse_row_of(const struct reuse *reuse, uint64_t key)
{
	uint32_t found = id_map_find(&reuse->rows, key);

	return found == ID_MAP_NONE ? NULL : &reuse->of[found];
}

/* How many windows begin until a moment. */
static size_t windows_until(const struct trace_windows *windows, uint64_t time_ns)
{
	return SORTED_ABOVE(windows->items, windows->count, start_ns, time_ns);
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

/* What of the time before a moment was between windows, and in them. */
static void span_until(const struct reuse *reuse, uint64_t time_ns, int sign,
		       struct reuse_span *sum)
{
	size_t count = windows_until(reuse->windows, time_ns);
	const struct trace_window *last = &reuse->windows->items[count ? count - 1 : 0];
	const struct reuse_clock *clock = &reuse->clock[count ? count - 1 : 0];
	uint64_t end_ns = last->end_ns ? last->end_ns : UINT64_MAX;

	if (!count)
		return;
	sum->dark += sign * (clock->dark + seconds(end_ns, time_ns));
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		sum->open[g] += sign * clock->open[g];
	sum->open[reuse->groups[count - 1]] +=
		sign * seconds(last->start_ns, time_ns < end_ns ? time_ns : end_ns);
}

/* The part of an age that lies before end_ns. 0: none does. */
static int age_span(const struct reuse *reuse, uint64_t shown_ns, uint32_t age, uint64_t end_ns,
		    struct reuse_span *out)
{
	uint64_t from_ns = shown_ns + (age ? age_end_ns(age - 1) : 0);
	uint64_t to_ns = shown_ns + age_end_ns(age);

	*out = (struct reuse_span){0};
	if (from_ns >= end_ns)
		return 0;
	span_until(reuse, to_ns < end_ns ? to_ns : end_ns, 1, out);
	span_until(reuse, from_ns, -1, out);
	out->dark = fmax(0, out->dark);
	return 1;
}

static struct reuse_item of_death(const struct death *dead)
{
	uint64_t end_ns = dead->reused_ns ? dead->reused_ns : dead->died_ns;

	return (struct reuse_item){
		.count = 1,
		.hidden = dead->hidden,
		.shown_ns = dead->shown_ns,
		.end_ns = end_ns > dead->shown_ns ? end_ns : dead->shown_ns,
	};
}

uint64_t reuse_key(const struct reuse *reuse, const struct reuse_like *like)
{
	uint64_t key = death_row_key(like->stack, like->kind, like->class_bytes);
	const struct block_owner *of;

	if (!reuse->by_owner)
		return key;
	of = block_owners_get(&reuse->process->owners, like->owner);
	return hash_u64(key) ^ (reuse->process->info.tasks ? of->task : of->tid);
}

static uint64_t key_of_death(const struct reuse *reuse, const struct death *dead)
{
	return reuse_key(reuse, &(struct reuse_like){dead->stack, dead->kind, dead->class_bytes,
						     dead->owner});
}

/* Only malloc's blocks have these, whose rows are of no owner. */
static uint64_t key_of_life(const struct life *life)
{
	return death_row_key(life->stack, life->kind, life->class_bytes);
}

static int row_find(struct reuse *reuse, uint64_t key)
{
	return id_map_find(&reuse->rows, key) == ID_MAP_NONE
		       ? id_map_put(&reuse->rows, key, (uint32_t)reuse->count++)
		       : 0;
}

/* Only rows with an event can have a rate. */
static int rows_find(struct reuse *reuse)
{
	const struct deaths *deaths = &reuse->windows->deaths;
	const struct frees *frees = &reuse->windows->frees;
	int err = 0;

	for (size_t i = 0; !err && i < deaths->count; i++)
		if (deaths->items[i].hidden)
			err = row_find(reuse, key_of_death(reuse, &deaths->items[i]));
	for (size_t i = 0; !err && i < frees->life_count; i++)
		if (frees->lives[i].hidden)
			err = row_find(reuse, key_of_life(&frees->lives[i]));
	return err;
}

static int item_add(struct reuse *reuse, uint64_t key, const struct reuse_item *item)
{
	uint32_t row = id_map_find(&reuse->rows, key);
	int err;

	if (row == ID_MAP_NONE || !item->shown_ns)
		return 0;
	err = ARRAY_RESERVE(NULL, reuse, items, item_count, item_capacity, 1);
	if (err)
		return err;
	reuse->items[reuse->item_count] = *item;
	reuse->items[reuse->item_count].shown_ns -= item->shown_ns % SHOWN_STEP_NS;
	reuse->items[reuse->item_count++].row = row;
	return 0;
}

/* As many of them as a walk would not have noticed, and the others. */
static int life_add(struct reuse *reuse, const struct life *life)
{
	uint32_t hidden =
		life->asked ? (uint32_t)((uint64_t)life->count * life->hidden / life->asked) : 0;
	uint64_t start_ns = reuse->windows->items[life->window].start_ns;
	struct reuse_item item = {.shown_ns = start_ns + SHOWN_STEP_NS - start_ns % SHOWN_STEP_NS};
	int err = 0;

	item.end_ns = item.shown_ns + life->lived_ns / life->count;
	for (item.hidden = 0; !err && item.hidden < 2; item.hidden++) {
		item.count = item.hidden ? hidden : life->count - hidden;
		err = item.count ? item_add(reuse, key_of_life(life), &item) : 0;
	}
	return err;
}

static int items_find(const struct process_state *process, struct reuse *reuse)
{
	const struct trace_windows *windows = reuse->windows;
	const struct sampled_block *sampled_block;
	size_t cursor = 0;
	int err = 0;

	for (size_t i = 0; !err && i < windows->deaths.count; i++) {
		const struct reuse_item item = of_death(&windows->deaths.items[i]);

		err = item_add(reuse, key_of_death(reuse, &windows->deaths.items[i]), &item);
	}
	for (size_t i = 0; !err && i < windows->frees.life_count; i++)
		if (windows->frees.lives[i].window < windows->count)
			err = life_add(reuse, &windows->frees.lives[i]);
	while (!err && (sampled_block = sampled_blocks_next(&windows->sampled_blocks, &cursor))) {
		const struct block *block = state_window_block(process, sampled_block);
		const struct reuse_item item = {
			.count = 1, .shown_ns = sampled_block->shown_ns, .end_ns = reuse->walk_ns};
		struct reuse_like like;

		if (!block || !sampled_block->kind || sampled_block->flags & ~SAMPLED_BLOCK_NATIVE)
			continue;
		like = (struct reuse_like){.stack = block->stack, .owner = block->owner};
		state_window_place(process, sampled_block, block, &like.kind, &like.class_bytes);
		err = item_add(reuse, reuse_key(reuse, &like), &item);
	}
	return err;
}

static int item_compare(const void *a, const void *b)
{
	const struct reuse_item *x = a, *y = b;

	return CMP(x->row, y->row)
	       ?: CMP(x->shown_ns, y->shown_ns)
	       ?: CMP(x->end_ns, y->end_ns)
	       ?: CMP(x->hidden, y->hidden);
}

static void items_sort(struct reuse *reuse)
{
	size_t count = 0;

	if (reuse->item_count)
		qsort(reuse->items, reuse->item_count, sizeof(*reuse->items), item_compare);
	for (size_t i = 0; i < reuse->item_count; i++)
		if (count && !item_compare(&reuse->items[count - 1], &reuse->items[i]))
			reuse->items[count - 1].count += reuse->items[i].count;
		else
			reuse->items[count++] = reuse->items[i];
	reuse->item_count = count;
	for (size_t i = 0; i < reuse->item_count; i++) {
		struct reuse_row *row = &reuse->of[reuse->items[i].row];

		if (!row->items_end)
			row->items = i;
		row->items_end = i + 1;
	}
}

static void clock_fill(struct reuse *reuse)
{
	const struct trace_windows *windows = reuse->windows;

	for (size_t i = 1; i < windows->count; i++) {
		const struct trace_window *before = &windows->items[i - 1];

		reuse->clock[i] = reuse->clock[i - 1];
		reuse->clock[i].dark += seconds(before->end_ns, windows->items[i].start_ns);
		reuse->clock[i].open[reuse->groups[i - 1]] +=
			seconds(before->start_ns, before->end_ns);
	}
}

/* The time since which all deaths are known: the table keeps only so many. */
static uint64_t known_from_ns(const struct deaths *deaths)
{
	const struct death *oldest;

	if (deaths->count < DEATHS_MAX)
		return 0;
	oldest = &deaths->items[(deaths->last + 1) % DEATHS_MAX];
	return oldest->reused_ns ? oldest->reused_ns : oldest->died_ns;
}

int reuse_find(const struct process_state *process, uint64_t walk_ns, bool by_owner,
	       struct reuse *out)
{
	size_t count = process->windows.count;
	int err;

	*out = (struct reuse){.process = process,
			      .windows = &process->windows,
			      .by_owner = by_owner && !state_window_is_native(process),
			      .walk_ns = walk_ns,
			      .from_ns = known_from_ns(&process->windows.deaths)};
	err = count ? rows_find(out) : 0;
	if (err || !out->count)
		return err;
	out->of = calloc(out->count, sizeof(*out->of));
	out->groups = calloc(count, sizeof(*out->groups));
	out->clock = calloc(count, sizeof(*out->clock));
	if (!out->of || !out->groups || !out->clock)
		return -ENOMEM;
	calibrate_groups(count, out->groups);
	clock_fill(out);
	err = items_find(process, out);
	if (err)
		return err;
	items_sort(out);
	reuse_rates(out, 1);
	return 0;
}

void reuse_free(struct reuse *reuse)
{
	id_map_free(&reuse->rows);
	free(reuse->of);
	free(reuse->items);
	free(reuse->groups);
	free(reuse->clock);
}

static void item_count(const struct reuse *reuse, const struct reuse_item *item, uint32_t age,
		       struct counts *counts)
{
	uint64_t to_ns = item->shown_ns + age_end_ns(age);
	double same = item->count * exp(-item->hazard);
	struct reuse_span span;
	size_t window;

	/* Deaths of that time are not known. */
	if (item->shown_ns < reuse->from_ns ||
	    !age_span(reuse, item->shown_ns, age, item->end_ns + 1, &span))
		return;
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		counts->open[g] += same * span.open[g];
	window = windows_until(reuse->windows, item->end_ns);
	if (item->hidden && item->end_ns < to_ns && window)
		counts->events[reuse->groups[window - 1]] += same;
}

/* Returns 0 if windows have shown next to nothing of that age. */
static int rate_set(struct reuse_row *row, uint32_t age, const struct counts *counts, double speed)
{
	double events = 0, open = 0;

	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++) {
		events += counts->events[g];
		open += counts->open[g];
	}
	if (open < OPEN_MIN)
		return 0;
	row->rates[REUSE_ALL][age] = events / open / speed;
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++) {
		double rest = open - counts->open[g];

		row->rates[g][age] = rest > OPEN_MIN / CALIBRATE_GROUPS
					     ? (events - counts->events[g]) / rest / speed
					     : row->rates[REUSE_ALL][age];
	}
	return 1;
}

/* Ages between two that windows have shown get the higher rate of these. */
static void rates_fill(struct reuse_row *row, uint32_t from, uint32_t to)
{
	for (uint32_t g = 0; g <= REUSE_ALL; g++)
		for (uint32_t age = from; age < to; age++) {
			double before = from ? row->rates[g][from - 1] : 0;
			double after = to < LIFE_AGES ? row->rates[g][to] : 0;

			row->rates[g][age] = fmax(before, after);
		}
}

static void hazard_add(struct reuse *reuse, const struct reuse_row *row, uint32_t age)
{
	for (size_t i = row->items; i < row->items_end; i++) {
		struct reuse_item *item = &reuse->items[i];
		struct reuse_span span;

		if (age_span(reuse, item->shown_ns, age, item->end_ns, &span))
			item->hazard += row->rates[REUSE_ALL][age] * span.dark;
	}
}

static void row_rates(struct reuse *reuse, struct reuse_row *row, double speed)
{
	uint32_t known = 0; /* ages before have a rate */

	for (size_t i = row->items; i < row->items_end; i++)
		reuse->items[i].hazard = 0;
	for (uint32_t age = 0; age < LIFE_AGES; age++) {
		struct counts counts = {0};

		for (size_t i = row->items; i < row->items_end; i++)
			item_count(reuse, &reuse->items[i], age, &counts);
		if (!rate_set(row, age, &counts, speed))
			continue;
		rates_fill(row, known, age);
		for (; known <= age; known++)
			hazard_add(reuse, row, known);
	}
	rates_fill(row, known, LIFE_AGES);
}

void reuse_rates(struct reuse *reuse, double speed)
{
	for (size_t i = 0; i < reuse->count; i++)
		row_rates(reuse, &reuse->of[i], speed);
}

/* exp(-hazard) at the end, and its mean over the time. */
struct lived {
	double end, mean;
};

static void survive(const struct reuse *reuse, const struct reuse_row *row, uint64_t shown_ns,
		    uint64_t until_ns, struct lived out[CALIBRATE_GROUPS + 1])
{
	double hazards[CALIBRATE_GROUPS + 1] = {0}, sums[CALIBRATE_GROUPS + 1] = {0}, all = 0;
	struct reuse_span span;

	for (uint32_t age = 0; age < LIFE_AGES && age_span(reuse, shown_ns, age, until_ns, &span);
	     age++) {
		double open = 0;

		for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
			open += span.open[g];
		all += span.dark + open;
		for (uint32_t g = 0; g <= REUSE_ALL; g++) {
			double rise = row->rates[g][age] * span.dark;
			double mean = rise > 1e-9 ? (1 - exp(-rise)) / rise : 1;

			sums[g] += exp(-hazards[g]) * mean * (span.dark + open);
			hazards[g] += rise;
		}
	}
	for (uint32_t g = 0; g <= REUSE_ALL; g++)
		out[g] = (struct lived){.end = fmax(exp(-hazards[g]), SURVIVAL_MIN),
					.mean = all > 0 ? fmax(fmin(sums[g] / all, 1), SURVIVAL_MIN)
							: 1};
}

struct calibrate_survival reuse_alive(const struct reuse *reuse, const struct reuse_row *row,
				      uint64_t shown_ns)
{
	struct lived lived[CALIBRATE_GROUPS + 1];
	struct calibrate_survival survival;

	survive(reuse, row, shown_ns, reuse->walk_ns, lived);
	survival.whole = (float)lived[REUSE_ALL].end;
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		survival.without[g] = (float)lived[g].end;
	return survival;
}

struct calibrate_survival reuse_lived(const struct reuse *reuse, const struct reuse_row *row,
				      uint64_t shown_ns, uint64_t until_ns)
{
	struct lived lived[CALIBRATE_GROUPS + 1];
	struct calibrate_survival survival;

	survive(reuse, row, shown_ns, until_ns, lived);
	survival.whole = (float)lived[REUSE_ALL].mean;
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		survival.without[g] = (float)lived[g].mean;
	return survival;
}
