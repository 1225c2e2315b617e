/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/tui/groups.h"

#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/hash.h"
#include "util/sorted.h"

void watch_groups_free(struct watch_groups *groups)
{
	free(groups->items);
	free(groups->histories);
	free(groups->aged);
	id_map_free(&groups->keys);
}

/* Looks up the group of every stack again. */
static void groups_forget(struct watch_groups *groups, struct watch_model *model)
{
	for (size_t i = 0; i < model->process_count; i++)
		for (size_t j = 0; j < model->processes[i].sum_count; j++)
			model->processes[i].sums[j].group = WATCH_NONE;
	id_map_free(&groups->keys);
	groups->keys = (struct id_map){.seed = model->pids.seed};
	groups->count = 0;
	groups->whole = model->whole - 1;
}

void watch_groups_by(struct watch_groups *groups, struct watch_model *model, enum watch_by by)
{
	groups->by = by;
	groups_forget(groups, model);
}

void watch_groups_filter(struct watch_groups *groups, const char *filter)
{
	snprintf(groups->filter, sizeof(groups->filter), "%s", filter);
	for (size_t i = 0; i < groups->count; i++)
		groups->items[i].shown = 0;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	return hash_u64(hash ^ value) + value;
}

static uint64_t text_hash(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = mix(hash, (unsigned char)*text);
	return hash;
}

static uint64_t frame_hash(const struct stacks_frame *frame, enum watch_by by, uint64_t hash)
{
	hash = mix(hash, frame->filename);
	if (by != WATCH_FILE && by != WATCH_FUNCTION)
		hash = mix(hash, frame->line);
	/* As in a report: the function is all that distinguishes frames without a line. */
	if (by == WATCH_FUNCTION || by == WATCH_TRACEBACK || (by == WATCH_LINE && !frame->line))
		hash = mix(hash, frame->function + 1ull);
	return hash;
}

static uint64_t sum_key(const struct watch_groups *groups, const struct watch_model *model,
			const struct watch_process *process, const struct watch_sum *sum)
{
	const struct watch_stack *stack = &process->stacks[sum->stack];
	uint64_t hash = mix(model->pids.seed, groups->by);
	uint32_t frames = groups->by == WATCH_TRACEBACK ? stack->nframe : 1;

	if (groups->by == WATCH_THREAD || groups->by == WATCH_TASK)
		hash = mix(hash, sum->owner);
	if (groups->by == WATCH_PROCESS || groups->by == WATCH_THREAD || groups->by == WATCH_TASK)
		return mix(mix(hash, process->info.pid), process->info.start_ns);
	if (groups->by == WATCH_CONTAINER)
		return text_hash(hash, process->info.container);
	if (!stack->nframe)
		return WATCH_NAMELESS;
	for (uint32_t i = 0; i < frames; i++)
		hash = frame_hash(&model->frames[stack->first + i], groups->by, hash);
	return hash;
}

static int group_get(struct watch_groups *groups, const struct watch_model *model, uint32_t process,
		     uint32_t index, uint32_t *out)
{
	const struct watch_process *of = &model->processes[process];
	uint64_t key = sum_key(groups, model, of, &of->sums[index]);

	*out = id_map_find(&groups->keys, key);
	if (*out != ID_MAP_NONE)
		return 0;
	int err = ARRAY_GROW(groups->items, groups->capacity, groups->count)
			  ?: id_map_put(&groups->keys, key, (uint32_t)groups->count);
	if (err)
		return err;
	*out = (uint32_t)groups->count++;
	groups->items[*out] = (struct watch_group){
		.key = key, .process = process, .sum = index, .first = WATCH_NONE};
	return 0;
}

static struct watch_group *group_at(struct watch_groups *groups, size_t index)
{
	struct watch_group *group = &groups->items[index];

	if (group->turn != groups->turn) {
		group->turn = groups->turn;
		group->growth = group->allocated = 0;
		group->row = 0;
	}
	return group;
}

static void group_put(struct watch_groups *groups, struct watch_model *model, uint32_t process,
		      uint32_t index)
{
	struct watch_sum *sum = &model->processes[process].sums[index];
	struct watch_group *group = &groups->items[sum->group];

	sum->held = 1;
	sum->held_size = sum->held_count = 0;
	sum->last = WATCH_NONE;
	sum->next = group->first;
	sum->next_process = group->first_process;
	if (sum->next != WATCH_NONE) {
		struct watch_sum *next = &model->processes[sum->next_process].sums[sum->next];

		next->last = index;
		next->last_process = process;
	}
	group->first = group->sum = index;
	group->first_process = group->process = process;
	group->mark_size += sum->mark_size;
	group->mark_count += sum->mark_count;
}

/* The sum is no longer one of its group. */
static void group_take(struct watch_groups *groups, struct watch_model *model,
		       struct watch_sum *sum)
{
	struct watch_group *group = &groups->items[sum->group];

	sum->held = 0;
	group->size -= sum->held_size;
	group->count -= sum->held_count;
	group->mark_size -= sum->mark_size;
	group->mark_count -= sum->mark_count;
	if (sum->next != WATCH_NONE) {
		struct watch_sum *next = &model->processes[sum->next_process].sums[sum->next];

		next->last = sum->last;
		next->last_process = sum->last_process;
	}
	if (sum->last != WATCH_NONE) {
		struct watch_sum *last = &model->processes[sum->last_process].sums[sum->last];

		last->next = sum->next;
		last->next_process = sum->next_process;
	} else {
		group->first = sum->next;
		group->first_process = sum->next_process;
	}
	if (group->first == WATCH_NONE) { /* no rounding errors stay */
		group->size = group->count = group->mark_size = group->mark_count = 0;
	} else {
		group->sum = group->first;
		group->process = group->first_process;
	}
}

/* Brings its group up to date. since: the slot that growth is measured from. 0, -ENOMEM. */
static int sum_update(struct watch_groups *groups, struct watch_model *model, uint32_t index,
		      uint32_t i, uint32_t since, double seconds)
{
	struct watch_process *process = &model->processes[index];
	struct watch_sum *sum = &process->sums[i];
	const struct watch_past *past;
	struct watch_group *group;
	int err = 0;

	if (sum->renamed) {
		if (sum->held)
			group_take(groups, model, sum);
		sum->renamed = 0;
		sum->group = WATCH_NONE;
	}
	if (sum->group == WATCH_NONE)
		err = group_get(groups, model, index, i, &sum->group);
	if (err)
		return err;
	group = group_at(groups, sum->group);
	if (!sum->held)
		group_put(groups, model, index, i);
	group->size += sum->size - sum->held_size;
	group->count += sum->count - sum->held_count;
	sum->held_size = sum->size;
	sum->held_count = sum->count;
	if (since == WATCH_NONE || !sum->lively)
		return 0;
	past = &process->past[since][i];
	group->growth += (sum->size - past->size) / seconds;
	group->allocated += (sum->fresh - past->fresh) / seconds;
	return 0;
}

static void figures_forget(struct watch_groups *groups)
{
	for (size_t i = 0; i < groups->count; i++) {
		struct watch_group *group = &groups->items[i];

		group->size = group->count = group->mark_size = group->mark_count = 0;
		group->first = WATCH_NONE;
	}
}

/* All sums of a process, of which the groups have nothing. 0, -ENOMEM. */
static int process_sum(struct watch_groups *groups, struct watch_model *model, uint32_t index,
		       uint32_t since, double seconds)
{
	struct watch_process *process = &model->processes[index];
	int err = 0;

	for (uint32_t i = 0; !err && i < process->sum_count; i++) {
		struct watch_sum *sum = &process->sums[i];

		sum->held = 0;
		if (sum->count > 0 || sum->mark_count > 0 || sum->lively)
			err = sum_update(groups, model, index, i, since, seconds);
	}
	return err;
}

/* Those that may differ from what the groups have, or from their past. 0, -ENOMEM. */
static int lively_sum(struct watch_groups *groups, struct watch_model *model, uint32_t index,
		      uint32_t since, double seconds)
{
	const struct watch_process *process = &model->processes[index];
	int err = 0;

	for (size_t i = 0; !err && i < process->lively_count; i++)
		err = sum_update(groups, model, index, process->lively[i], since, seconds);
	return err;
}

static double sort_value(const struct watch_groups *groups, uint32_t index)
{
	const struct watch_group *group = &groups->items[index];
	double diff;

	switch (groups->sort) {
	case WATCH_COUNT:
		return group->count;
	case WATCH_GROWTH:
		return group->growth;
	case WATCH_ALLOCATED:
		return group->allocated;
	case WATCH_DIFF:
		diff = group->size - group->mark_size;
		return diff < 0 ? -diff : diff;
	default:
		return group->size;
	}
}

/* Does row a come after row b? Equal ones keep an order, so that they do not jump. */
static bool is_after(const struct watch_groups *groups, uint32_t a, uint32_t b)
{
	double x = sort_value(groups, a), y = sort_value(groups, b);

	return x < y || (x <= y && groups->items[a].key < groups->items[b].key);
}

/* A heap of the best rows, the last of them on top. */
static void heap_sink(const struct watch_groups *groups, uint32_t *rows, size_t count, size_t at)
{
	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		uint32_t row = rows[at];

		if (child + 1 < count && is_after(groups, rows[child + 1], rows[child]))
			child++;
		if (!is_after(groups, rows[child], row))
			return;
		rows[at] = rows[child];
		rows[child] = row;
	}
}

static int label_matches(const struct watch_groups *groups, const struct watch_model *model,
			 const struct watch_group *group)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return 1;
	watch_group_label(groups, model, group, out);
	int matches = fclose(out) || strcasestr(text, groups->filter) != NULL;
	free(text);
	return matches;
}

/* Is it a row? Counts it as one. */
static bool row_is(struct watch_groups *groups, const struct watch_model *model, uint32_t index)
{
	struct watch_group *group = group_at(groups, index);

	/* Lines that only throw away are in the way, unless they are asked for. */
	if (!group->count && !group->mark_count &&
	    (groups->sort != WATCH_ALLOCATED || !(group->allocated > 0)))
		return 0;
	if (!group->shown)
		group->shown = 1 + (!groups->filter[0] || label_matches(groups, model, group));
	if (group->shown < 2)
		return 0;
	groups->rows++;
	groups->rows_size += group->size;
	return 1;
}

/* One pass over all groups, which are more than the processor's caches hold. */
static size_t rows_choose(struct watch_groups *groups, const struct watch_model *model, size_t want,
			  uint32_t *rows)
{
	size_t count = 0;

	groups->rows = 0;
	groups->rows_size = 0;
	for (uint32_t i = 0; i < groups->count; i++) {
		if (!row_is(groups, model, i) || !want)
			continue;
		if (count < want) {
			rows[count++] = i;
			for (size_t at = count / 2; count == want && at-- > 0;)
				heap_sink(groups, rows, count, at);
		} else if (is_after(groups, rows[0], i)) {
			rows[0] = i;
			heap_sink(groups, rows, count, 0);
		}
	}
	for (size_t at = count / 2; count < want && at-- > 0;)
		heap_sink(groups, rows, count, at);
	for (size_t left = count; left > 1; left--) {
		uint32_t last = rows[0];

		rows[0] = rows[left - 1];
		rows[left - 1] = last;
		heap_sink(groups, rows, left - 1, 0);
	}
	return count;
}

/* The histories of the rows that are shown. 0, -ENOMEM. */
static int histories_sum(struct watch_groups *groups, const struct watch_model *model,
			 const uint32_t *rows, size_t count)
{
	int err = array_reserve(&groups->histories, &groups->history_capacity, 0, count + 1,
				sizeof(*groups->histories));

	if (err)
		return err;
	memset(groups->histories, 0, count * sizeof(*groups->histories));
	for (size_t i = 0; i < count; i++) {
		struct watch_group *group = &groups->items[rows[i]];
		uint32_t at = group->first, in = group->first_process;

		group->row = (uint32_t)i + 1;
		while (at != WATCH_NONE) {
			const struct watch_process *process = &model->processes[in];

			for (uint32_t k = 0; k < WATCH_HISTORY; k++)
				groups->histories[i][k] +=
					(float)process
						->past[(model->slot + 1 + k) % WATCH_HISTORY][at]
						.size;
			in = process->sums[at].next_process;
			at = process->sums[at].next;
		}
	}
	return 0;
}

static int aged_compare(const void *a, const void *b)
{
	const struct watch_aged *x = a, *y = b;

	return CMP(y->age, x->age);
}

/* Of blocks whose age is known: as a report has them. 0, -ENOMEM. */
static int group_ages(struct watch_groups *groups, const struct watch_model *model,
		      struct watch_group *group)
{
	double blocks = 0, visited = 0;
	uint32_t at = group->first, in = group->first_process;

	group->oldest = group->median = 0;
	groups->aged_count = 0;
	while (at != WATCH_NONE) {
		const struct watch_sum *sum = &model->processes[in].sums[at];

		if (sum->owner && sum->count > 0) {
			if (ARRAY_GROW(groups->aged, groups->aged_capacity, groups->aged_count))
				return -ENOMEM;
			groups->aged[groups->aged_count++] =
				(struct watch_aged){sum->owner, sum->count};
			blocks += sum->count;
		}
		in = sum->next_process;
		at = sum->next;
	}
	if (!groups->aged_count)
		return 0;
	qsort(groups->aged, groups->aged_count, sizeof(*groups->aged), aged_compare);
	group->oldest = groups->aged[0].age;
	for (size_t i = 0; i < groups->aged_count && !group->median; i++) {
		visited += groups->aged[i].count;
		if (visited * 2 >= blocks || i + 1 == groups->aged_count)
			group->median = groups->aged[i].age;
	}
	return 0;
}

static int rows_ages(struct watch_groups *groups, const struct watch_model *model,
		     const uint32_t *rows, size_t count)
{
	int err = 0;

	for (size_t i = 0; !err && i < count && model->by == REQUEST_BY_AGE; i++)
		err = group_ages(groups, model, &groups->items[rows[i]]);
	return err;
}

const float *watch_groups_history(const struct watch_groups *groups,
				  const struct watch_group *group)
{
	return group->row ? groups->histories[group->row - 1] : NULL;
}

int watch_groups_rows(struct watch_groups *groups, struct watch_model *model, size_t want,
		      uint32_t *rows)
{
	double seconds = 1;
	uint32_t since = watch_model_since(model, &seconds);
	int err = 0;

	if (groups->version != model->version)
		groups_forget(groups, model);
	groups->version = model->version;
	groups->turn++;
	int all = groups->whole != model->whole;

	if (all)
		figures_forget(groups);
	for (uint32_t i = 0; !err && i < model->process_count; i++)
		err = (all ? process_sum : lively_sum)(groups, model, i, since, seconds);
	/* What was added up in part is added up anew. */
	groups->whole = err ? model->whole - 1 : model->whole;
	if (err)
		return err;
	size_t count = rows_choose(groups, model, want, rows);

	return histories_sum(groups, model, rows, count) ?: rows_ages(groups, model, rows, count)
		?: (int)count;
}
