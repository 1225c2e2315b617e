/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "watch/model_sums.h"

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
	int err;

	*out = process_find(model, info->pid, info->start_ns);
	if (*out)
		return 0;
	err = array_reserve(&model->processes, &model->process_capacity, model->process_count, 1,
			    sizeof(*model->processes));
	if (!err)
		err = id_map_put(&model->pids, info->pid, (uint32_t)model->process_count);
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

static void history_put(struct watch_model *model)
{
	double seconds = 1;
	uint32_t since;

	model->slot = (model->slot + 1) % WATCH_HISTORY;
	model->serial++;
	model->times_ns[model->slot] = model->now.time_ns;
	model->all.size = model->all.count = model->all.mark_size = model->all.allocated = 0;
	since = watch_model_since(model, &seconds);
	for (size_t i = 0; i < model->process_count; i++) {
		struct watch_process *process = &model->processes[i];

		watch_sums_remember(model, process);
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
		int err;

		if (!text)
			return watch_malformed();
		err = array_reserve(&process->strings, &process->string_capacity,
				    process->string_count, 1, sizeof(*process->strings));
		if (!err)
			err = strings_intern(model->strings, text, *size,
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
	if (!model->by && index < process->sum_count) /* by owner its text does not matter */
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
	struct rest rest = {data, bytes}, texts;
	const struct stacks_header *header = take(&rest, sizeof(*header));
	struct watch_process *process;
	int err;

	if (!header || header->magic != SUMS_MAGIC || header->count > STACKS_AT_ONCE)
		return watch_malformed();
	process = process_find(model, header->pid, header->start_ns);
	if (!process)
		return 0;
	texts = rest;
	err = stacks_skip(header, &texts);
	if (!err && header->string_first == process->string_count)
		err = strings_take(model, process, header, &texts);
	/* A task's name may be among them. */
	model->version += model->by == REQUEST_BY_TASK && header->string_count;
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
