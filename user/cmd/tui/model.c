/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/tui/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/sorted.h"

/* --- model sums ------------------------------------------------------------------------------- */

/* The figures of a model. */

#define SUMS_SPARE 4096u
#define SUM_MAX    0x1p59 /* as of a session: more than any memory, and a float holds it */

/* -EBADMSG, error_set() */
static int watch_malformed(void)
{
	return error_set(-EBADMSG, "the session's answer is malformed: is it another version?");
}

static void watch_sums_forget(struct watch_process *process)
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
	int err = ARRAY_GROW(process->sums, process->sum_capacity, process->sum_count);

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

/* Its stack has another text than before. serial: of the last answer. */
static void watch_sum_rename(struct watch_process *process, uint32_t index, uint32_t serial)
{
	process->sums[index].renamed = 1;
	lively_put(process, &process->sums[index], serial);
}

/*
 * Puts what it holds into the present slot.
 *
 * Only what is lively has a past that differs from what it holds.
 */
static void watch_sums_remember(const struct watch_model *model, struct watch_process *process)
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

static bool is_empty(const struct watch_process *process, size_t index)
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

static bool is_figure(double value)
{
	return value >= 0 && value <= SUM_MAX;
}

/* What an answer has whose entries are by it. */
static uint32_t owners_flag(enum request_by by)
{
	static const uint32_t flags[] = {[REQUEST_BY_THREAD] = SUMS_THREADS,
					 [REQUEST_BY_TASK] = SUMS_TASKS,
					 [REQUEST_BY_AGE] = SUMS_AGES};

	return flags[by];
}

/*
 * Takes the entries of a process's answer, process->info.entries of them. Its stacks have been
 * added. 0; -EBADMSG, -ENOMEM.
 */
static int watch_sums_take(struct watch_model *model, struct watch_process *process,
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

	return CMP(x->tid, y->tid);
}

/* The names, process->info.threads of them. Errors as above. */
static int watch_threads_take(struct watch_process *process, const struct sums_thread *threads)
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

bool watch_model_tells(const struct watch_model *model, uint32_t flag)
{
	bool tells = false;

	for (size_t i = 0; i < model->process_count && !tells; i++)
		tells = model->processes[i].info.flags & flag;
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

/* --- model ------------------------------------------------------------------------------------ */

#define RETRY_NS     2000000000ull
#define RETRY_MAX_NS 64000000000ull
#define RESERVED     2u /* the first stacks of a process have no frames (process_tables.h) */

/* What of an answer is not read yet. */
struct rest {
	const unsigned char *at;
	size_t bytes;
};

/* The next part of that size; NULL: there is less. */
static const void *take(struct rest *rest, size_t bytes)
{
	const void *at = rest->at;

	if (rest->bytes < bytes)
		return NULL;
	rest->at += bytes;
	rest->bytes -= bytes;
	return at;
}

int watch_model_begin(struct watch_model *model)
{
	*model = (struct watch_model){.pids.seed = clock_ns(CLOCK_MONOTONIC)};
	return strings_new(&model->strings);
}

static void process_free(struct watch_process *process)
{
	free(process->strings);
	free(process->stacks);
	free(process->threads);
	watch_sums_forget(process);
}

void watch_model_end(struct watch_model *model)
{
	for (size_t i = 0; i < model->process_count; i++)
		process_free(&model->processes[i]);
	free(model->processes);
	free(model->frames);
	id_map_free(&model->pids);
	strings_free(model->strings);
}

static struct watch_process *process_find(struct watch_model *model, uint32_t pid,
					  uint64_t start_ns)
{
	uint32_t index = id_map_find(&model->pids, pid);

	if (index == ID_MAP_NONE || model->processes[index].info.start_ns != start_ns)
		return NULL;
	return &model->processes[index];
}

/* The process of that answer, added if it is new. 0, -ENOMEM. */
static int process_get(struct watch_model *model, const struct sums_process *info,
		       struct watch_process **out)
{
	*out = process_find(model, info->pid, info->start_ns);
	if (*out)
		return 0;
	int err = ARRAY_GROW(model->processes, model->process_capacity, model->process_count)
			  ?: id_map_put(&model->pids, info->pid, (uint32_t)model->process_count);
	if (err)
		return err;
	*out = &model->processes[model->process_count++];
	**out = (struct watch_process){.retry_pause_ns = RETRY_NS};
	return 0;
}

/* Forgets the processes that the last answer did not have. */
static int processes_sweep(struct watch_model *model)
{
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < model->process_count; i++) {
		struct watch_process *process = &model->processes[i];

		if (process->seen) {
			if (kept != i)
				err = err
					      ?: id_map_put(&model->pids, process->info.pid,
							    (uint32_t)kept);
			model->processes[kept++] = *process;
			continue;
		}
		/* Another process may have the pid by now, and then stands further on. */
		if (id_map_find(&model->pids, process->info.pid) == i)
			id_map_remove(&model->pids, process->info.pid);
		process_free(process);
		model->version++;
		model->lost += model->mark_ns != 0;
	}
	model->process_count = kept;
	return err;
}

static int stacks_grow(struct watch_process *process, uint32_t count)
{
	if (count <= process->stack_count)
		return 0;
	int err = array_reserve(&process->stacks, &process->stack_capacity, process->stack_count,
				count - process->stack_count, sizeof(*process->stacks));

	for (; !err && process->stack_count < count; process->stack_count++)
		process->stacks[process->stack_count] = (struct watch_stack){0};
	return err;
}

static int process_take(struct watch_model *model, struct rest *rest)
{
	const struct sums_process *info = take(rest, sizeof(*info));
	const struct sums_entry *entries;
	const struct sums_thread *threads;
	struct watch_process *process;

	if (!info || info->stacks > WATCH_STACKS || info->layer >= EVENT_LAYERS ||
	    info->name[SUMS_NAME_BYTES - 1] || info->container[SUMS_NAME_BYTES - 1])
		return watch_malformed();
	int err = process_get(model, info, &process);

	if (err)
		return err;
	/* Changes are those of sums that are there, of the same layer. */
	if (info->flags & SUMS_CHANGES &&
	    (!model->since || model->by || !process->counted || process->info.layer != info->layer))
		return watch_malformed();
	process->info = *info;
	process->seen = 1;
	entries = take(rest, (size_t)info->entries * sizeof(*entries));
	threads = take(rest, (size_t)info->threads * sizeof(*threads));
	if (!entries || !threads)
		return watch_malformed();
	return stacks_grow(process, info->stacks) ?: watch_threads_take(process, threads)
		       ?: watch_sums_take(model, process, entries);
}

static struct watch_collected collected_of(const struct collections *collections)
{
	return (struct watch_collected){
		.time_ns = collections->time_ns,
		.done = collections_sum(collections, COLLECTIONS_DONE),
		.freed = collections_sum(collections, COLLECTIONS_FREED),
		.took_ns = collections_sum(collections, COLLECTIONS_NS),
	};
}

static void history_put(struct watch_model *model)
{
	double seconds = 1;

	model->slot = (model->slot + 1) % WATCH_HISTORY;
	model->serial++;
	model->times_ns[model->slot] = model->now.time_ns;
	model->all.size = model->all.count = model->all.mark_size = model->all.allocated = 0;
	uint32_t since = watch_model_since(model, &seconds);
	for (size_t i = 0; i < model->process_count; i++) {
		struct watch_process *process = &model->processes[i];

		watch_sums_remember(model, process);
		process->collected[model->slot] = collected_of(&process->info.collections);
		model->all.size += process->size;
		model->all.count += process->count;
		model->all.mark_size += process->mark_size;
		if (since != WATCH_NONE)
			model->all.allocated +=
				(process->fresh - process->past_fresh[since]) / seconds;
	}
	model->totals[model->slot] = (float)model->all.size;
}

int watch_model_sums(struct watch_model *model, const void *data, size_t bytes)
{
	struct rest rest = {data, bytes};
	const struct sums_header *header = take(&rest, sizeof(*header));
	int err = 0;

	if (!header || header->magic != SUMS_MAGIC || header->processes > bytes)
		return watch_malformed();
	for (size_t i = 0; i < model->process_count; i++)
		model->processes[i].seen = 0;
	for (uint64_t i = 0; !err && i < header->processes; i++)
		err = process_take(model, &rest);
	if (err)
		return err;
	model->before = model->now;
	model->now = *header;
	model->since = (uint32_t)header->number;
	model->answers += model->answers < 2;
	err = processes_sweep(model);
	history_put(model);
	return err;
}

static int strings_take(struct watch_model *model, struct watch_process *process,
			const struct stacks_header *header, struct rest *rest)
{
	for (uint32_t i = 0; i < header->string_count; i++) {
		const uint64_t *size = take(rest, sizeof(*size));
		const char *text =
			size && *size <= rest->bytes ? take(rest, *size + (-*size & 7)) : NULL;

		if (!text)
			return watch_malformed();
		int err = ARRAY_GROW(process->strings, process->string_capacity,
				     process->string_count);
		err = err
			      ?: strings_intern(model->strings, text, *size,
						&process->strings[process->string_count]);
		if (err)
			return err;
		process->string_count++;
	}
	return 0;
}

/* The frames of a stack, from where they are in the answer. The strings are known. */
static int frames_take(struct watch_model *model, struct watch_process *process, uint32_t index,
		       const struct stacks_frame *frames, uint32_t nframe)
{
	struct watch_stack *stack = &process->stacks[index];
	int err = 0;

	/* Usually it has as many as before. */
	if (nframe > stack->nframe) {
		err = array_reserve(&model->frames, &model->frame_capacity, model->frame_count,
				    nframe, sizeof(*model->frames));
		if (err)
			return err;
		stack->first = (uint32_t)model->frame_count;
		model->frame_count += nframe;
	}
	stack->nframe = nframe;
	for (uint32_t i = 0; i < nframe; i++) {
		struct stacks_frame *frame = &model->frames[stack->first + i];

		*frame = frames[i];
		if (frame->filename >= process->string_count ||
		    frame->function >= process->string_count)
			return watch_malformed();
		frame->filename = process->strings[frame->filename];
		frame->function = process->strings[frame->function];
	}
	/* By thread and task its text does not matter; by age all are looked up again. */
	if (!model->by && index < process->sum_count)
		watch_sum_rename(process, index, model->serial);
	stack->unread = index >= RESERVED &&
			strings_get(model->strings, model->frames[stack->first].filename)[0] == '<';
	return 0;
}

/* Where the strings of an answer begin: behind its stacks. */
static int stacks_skip(const struct stacks_header *header, struct rest *rest)
{
	for (uint32_t i = 0; i < header->count; i++) {
		const struct stacks_entry *entry = take(rest, sizeof(*entry));

		if (!entry || !entry->nframe || entry->nframe > EVENT_MAX_FRAMES ||
		    !take(rest, entry->nframe * sizeof(struct stacks_frame)))
			return watch_malformed();
	}
	return 0;
}

int watch_model_stacks(struct watch_model *model, const void *data, size_t bytes)
{
	struct rest rest = {data, bytes};
	const struct stacks_header *header = take(&rest, sizeof(*header));

	if (!header || header->magic != SUMS_MAGIC || header->count > STACKS_AT_ONCE)
		return watch_malformed();
	struct watch_process *process = process_find(model, header->pid, header->start_ns);
	if (!process)
		return 0;
	struct rest texts = rest;
	int err = stacks_skip(header, &texts);
	if (!err && header->string_first == process->string_count)
		err = strings_take(model, process, header, &texts);
	/* A task's name may be among them; by age, a stack has many sums. */
	model->version += (model->by == REQUEST_BY_TASK && header->string_count) ||
			  (model->by == REQUEST_BY_AGE && header->count);
	if (err || process->string_count < header->strings) /* more strings come first */
		return err;
	if (header->first > process->described || header->count > WATCH_STACKS - header->first)
		return watch_malformed();
	err = stacks_grow(process, header->first + header->count);
	for (uint32_t i = 0; !err && i < header->count; i++) {
		const struct stacks_entry *entry = take(&rest, sizeof(*entry));

		err = frames_take(model, process, header->first + i,
				  take(&rest, entry->nframe * sizeof(struct stacks_frame)),
				  entry->nframe);
	}
	if (header->first + header->count > process->described)
		process->described = header->first + header->count;
	return err;
}

/* The next stack whose name the session did not have; WATCH_NONE: none. */
static uint32_t unread_next(struct watch_process *process)
{
	for (; process->unread_at < process->described; process->unread_at++)
		if (process->stacks[process->unread_at].unread)
			return process->unread_at;
	return WATCH_NONE;
}

static int process_missing(struct watch_process *process, enum request_by by, uint64_t now_ns,
			   uint32_t *first)
{
	*first = process->described;
	if (process->described < process->info.stacks ||
	    (by == REQUEST_BY_TASK && process->string_count < process->info.strings))
		return 1;
	if (now_ns < process->retry_ns)
		return 0;
	*first = unread_next(process);
	if (*first != WATCH_NONE) {
		process->unread_at = *first + STACKS_AT_ONCE;
		return 1;
	}
	/* The whole process was gone through. */
	process->unread_at = 0;
	process->retry_ns = now_ns + process->retry_pause_ns;
	if (process->retry_pause_ns < RETRY_MAX_NS)
		process->retry_pause_ns *= 2;
	return 0;
}

int watch_model_missing(struct watch_model *model, uint64_t now_ns, struct request *request)
{
	for (size_t i = 0; i < model->process_count; i++) {
		struct watch_process *process = &model->processes[i];
		uint32_t first;

		if (!process_missing(process, model->by, now_ns, &first))
			continue;
		*request = (struct request){.kind = REQUEST_STACKS,
					    .pid = process->info.pid,
					    .first = first,
					    .strings = (uint32_t)process->string_count};
		return 1;
	}
	return 0;
}
