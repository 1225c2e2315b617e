/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/model_sums.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

#define SUMS_SPARE 4096u
#define SUM_MAX    0x1p59 /* as of a session: more than any memory, and a float holds it */

int watch_malformed(void)
{
	return error_set(-EBADMSG, "the session's answer is malformed: is it another version?");
}

void watch_sums_forget(struct watch_process *process)
{
	free(process->sums);
	process->sums = NULL;
	for (uint32_t i = 0; i < WATCH_HISTORY; i++) {
		free(process->past[i]);
		process->past[i] = NULL;
	}
	free(process->lively);
	process->lively = NULL;
	process->lively_count = 0;
	process->size = process->count = process->mark_size = process->fresh = 0;
	memset(process->past_fresh, 0, sizeof(process->past_fresh));
	process->sum_count = process->sum_capacity = process->past_capacity = 0;
	id_map_free(&process->sum_keys);
}

/* As many as there may be sums. 0, -ENOMEM. */
static int past_grow(struct watch_process *process)
{
	for (uint32_t i = 0; i < WATCH_HISTORY; i++) {
		struct watch_past *past =
			reallocarray(process->past[i], process->sum_capacity, sizeof(*past));

		if (!past)
			return -ENOMEM;
		process->past[i] = past;
	}
	uint32_t *lively =
		reallocarray(process->lively, process->sum_capacity, sizeof(*process->lively));

	if (!lively)
		return -ENOMEM;
	process->lively = lively;
	process->past_capacity = process->sum_capacity;
	return 0;
}

static int sum_add(struct watch_process *process, uint32_t stack, uint32_t owner)
{
	int err = array_reserve(&process->sums, &process->sum_capacity, process->sum_count, 1,
				sizeof(*process->sums));

	if (!err && process->past_capacity < process->sum_capacity)
		err = past_grow(process);
	if (err)
		return err;
	for (uint32_t i = 0; i < WATCH_HISTORY; i++)
		process->past[i][process->sum_count] = (struct watch_past){0};
	process->sums[process->sum_count++] =
		(struct watch_sum){.stack = stack, .owner = owner, .group = WATCH_NONE};
	return 0;
}

static uint64_t key_of(uint32_t stack, uint32_t owner)
{
	return (uint64_t)stack << 32 | owner;
}

/* That of an entry; by stack alone there is one for each stack. 0, -ENOMEM. */
static int sum_get(struct watch_model *model, struct watch_process *process,
		   const struct sums_entry *entry, struct watch_sum **out)
{
	uint64_t key = key_of(entry->stack, entry->owner);
	uint32_t at = entry->stack;
	int err = 0;

	if (model->by) {
		process->sum_keys.seed = model->pids.seed;
		at = id_map_find(&process->sum_keys, key);
	}
	if (at == ID_MAP_NONE) {
		at = (uint32_t)process->sum_count;
		err = id_map_put(&process->sum_keys, key, at)
			      ?: sum_add(process, entry->stack, entry->owner);
	}
	if (!err)
		*out = &process->sums[at];
	return err;
}

/* A layer that was traced anew has allocated less than before. */
static void allocated_take(struct watch_process *process, struct watch_sum *sum, double allocated)
{
	if (process->counted && allocated > sum->allocated) {
		sum->fresh += allocated - sum->allocated;
		process->fresh += allocated - sum->allocated;
	}
	sum->allocated = allocated;
}

static void lively_put(struct watch_process *process, struct watch_sum *sum, uint32_t serial)
{
	sum->changed_at = serial;
	if (!sum->lively)
		process->lively[process->lively_count++] = (uint32_t)(sum - process->sums);
	sum->lively = 1;
}

void watch_sum_rename(struct watch_process *process, uint32_t index, uint32_t serial)
{
	process->sums[index].renamed = 1;
	lively_put(process, &process->sums[index], serial);
}

/* Only what is lively has a past that differs from what it holds. */
void watch_sums_remember(const struct watch_model *model, struct watch_process *process)
{
	struct watch_past *past = process->past[model->slot];
	size_t kept = 0;

	process->past_fresh[model->slot] = process->fresh;
	for (size_t i = 0; i < process->lively_count; i++) {
		uint32_t index = process->lively[i];
		struct watch_sum *sum = &process->sums[index];

		past[index] = (struct watch_past){.size = sum->size, .fresh = sum->fresh};
		sum->lively = model->serial - sum->changed_at < WATCH_HISTORY;
		if (sum->lively)
			process->lively[kept++] = index;
	}
	process->lively_count = kept;
}

static void sums_reset(struct watch_process *process, uint32_t serial)
{
	process->size = process->count = 0;
	for (size_t i = 0; i < process->sum_count; i++) {
		struct watch_sum *sum = &process->sums[i];

		if (sum->count > 0 || sum->size > 0)
			lively_put(process, sum, serial);
		sum->size = sum->count = 0;
	}
}

static int is_empty(const struct watch_process *process, size_t index)
{
	const struct watch_sum *sum = &process->sums[index];
	double most = 0;

	for (uint32_t i = 0; i < WATCH_HISTORY; i++)
		most = process->past[i][index].size > most ? process->past[i][index].size : most;
	return !(sum->count > 0) && !(sum->mark_count > 0) && !(most > 0);
}

/* Threads and tasks come and go: forgets what holds nothing once that is most. 0, -ENOMEM. */
static int sums_shrink(struct watch_model *model, struct watch_process *process)
{
	size_t kept = 0;
	int err = 0;

	if (!model->by || process->sum_count < SUMS_SPARE + 2ul * process->info.entries)
		return 0;
	id_map_free(&process->sum_keys);
	process->sum_keys = (struct id_map){.seed = model->pids.seed};
	for (size_t i = 0; !err && i < process->sum_count; i++) {
		struct watch_sum sum = process->sums[i];

		if (is_empty(process, i))
			continue;
		for (uint32_t k = 0; k < WATCH_HISTORY; k++)
			process->past[k][kept] = process->past[k][i];
		sum.group = WATCH_NONE;
		err = id_map_put(&process->sum_keys, key_of(sum.stack, sum.owner), (uint32_t)kept);
		process->sums[kept++] = sum;
	}
	process->sum_count = kept;
	process->lively_count = 0;
	for (uint32_t i = 0; i < kept; i++) {
		process->sums[i].lively = 0;
		lively_put(process, &process->sums[i], model->serial);
	}
	model->version++;
	return err;
}

static int is_figure(double value)
{
	return value >= 0 && value <= SUM_MAX;
}

/* What an answer has whose entries are by it. */
static uint32_t owners_flag(enum request_by by)
{
	return by == REQUEST_BY_THREAD ? SUMS_THREADS : by == REQUEST_BY_TASK ? SUMS_TASKS : 0;
}

int watch_sums_take(struct watch_model *model, struct watch_process *process,
		    const struct sums_entry *entries)
{
	int changes = !!(process->info.flags & SUMS_CHANGES), err = sums_shrink(model, process);

	while (!err && !model->by && process->sum_count < process->stack_count)
		err = sum_add(process, (uint32_t)process->sum_count, 0);
	if (!changes)
		sums_reset(process, model->serial + 1);
	model->whole += !changes;
	for (uint32_t i = 0; !err && i < process->info.entries; i++) {
		const struct sums_entry *entry = &entries[i];
		struct watch_sum *sum;

		if (entry->stack >= process->stack_count ||
		    (entry->owner && !(process->info.flags & owners_flag(model->by))) ||
		    !is_figure(entry->size) || !is_figure(entry->count) ||
		    !is_figure(entry->allocated))
			return watch_malformed();
		err = sum_get(model, process, entry, &sum);
		if (err)
			break;
		if (changes) {
			process->size -= sum->size;
			process->count -= sum->count;
			sum->size = sum->count = 0;
		}
		process->size += entry->size;
		process->count += entry->count;
		sum->size += entry->size;
		sum->count += entry->count;
		allocated_take(process, sum, entry->allocated);
		lively_put(process, sum, model->serial + 1);
	}
	process->counted = 1;
	return err;
}

static int thread_compare(const void *a, const void *b)
{
	const struct sums_thread *x = a, *y = b;

	return (x->tid > y->tid) - (x->tid < y->tid);
}

int watch_threads_take(struct watch_process *process, const struct sums_thread *threads)
{
	size_t count = process->info.threads;

	for (size_t i = 0; i < count; i++)
		if (threads[i].name[sizeof(threads[i].name) - 1])
			return watch_malformed();
	free(process->threads);
	process->threads = NULL;
	process->info.threads = 0;
	if (!count)
		return 0;
	process->threads = calloc(count, sizeof(*threads));
	if (!process->threads)
		return -ENOMEM;
	memcpy(process->threads, threads, count * sizeof(*threads));
	qsort(process->threads, count, sizeof(*threads), thread_compare);
	process->info.threads = (uint32_t)count;
	return 0;
}

const char *watch_model_thread(const struct watch_process *process, uint32_t tid)
{
	const struct sums_thread key = {.tid = tid}, *found = NULL;

	if (process->threads)
		found = bsearch(&key, process->threads, process->info.threads, sizeof(key),
				thread_compare);
	return found ? found->name : NULL;
}

const char *watch_model_task(const struct watch_model *model, const struct watch_process *process,
			     uint32_t task, char numbered[32])
{
	if (task & TRACE_TASK_NUMBERED) {
		snprintf(numbered, 32, "Task-%u", task & ~TRACE_TASK_NUMBERED);
		return numbered;
	}
	return task < process->string_count ? strings_get(model->strings, process->strings[task])
					    : NULL;
}

int watch_model_tells_tasks(const struct watch_model *model)
{
	int tells = 0;

	for (size_t i = 0; i < model->process_count && !tells; i++)
		tells = !!(model->processes[i].info.flags & SUMS_TELLS);
	return tells;
}

size_t watch_model_unnamed(const struct watch_model *model)
{
	size_t count = 0;

	for (size_t i = 0; i < model->process_count; i++) {
		const struct watch_process *process = &model->processes[i];

		for (size_t j = model->by ? 0 : process->described; j < process->sum_count; j++)
			count += process->sums[j].stack >= process->described &&
				 process->sums[j].count > 0;
	}
	return count;
}

void watch_model_mark(struct watch_model *model, int off)
{
	model->mark_ns = off ? 0 : model->now.time_ns;
	model->all.mark_size = off ? 0 : model->all.size;
	model->lost = 0;
	model->whole++;
	for (size_t i = 0; i < model->process_count; i++) {
		struct watch_process *process = &model->processes[i];

		process->mark_size = off ? 0 : process->size;
		for (size_t j = 0; j < process->sum_count; j++) {
			struct watch_sum *sum = &process->sums[j];

			sum->mark_size = off ? 0 : sum->size;
			sum->mark_count = off ? 0 : sum->count;
		}
	}
}

void watch_model_restart(struct watch_model *model, enum request_by by)
{
	watch_model_mark(model, 1);
	model->by = by;
	model->since = 0;
	memset(model->times_ns, 0, sizeof(model->times_ns));
	memset(model->totals, 0, sizeof(model->totals));
	memset(&model->all, 0, sizeof(model->all));
	for (size_t i = 0; i < model->process_count; i++) {
		model->processes[i].counted = 0;
		watch_sums_forget(&model->processes[i]);
	}
	model->version++;
}
