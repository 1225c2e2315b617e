/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ctl/sums.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "snapshot/ages.h"
#include "util/buffer.h"
#include "util/clock.h"
#include "util/error.h"

/* Only memory takes whatever is written at once: a file or a pipe could block the session. */
static int memory_check(int fd)
{
	return fcntl(fd, F_GET_SEALS) >= 0
		       ? 0
		       : error_set(-EINVAL, "the descriptor passed with the request is no memfd");
}

static int memory_write(int fd, const struct buffer *data)
{
	size_t at = 0;

	/* Over the answer before, whose pages are there. */
	while (at < data->size) {
		ssize_t n = pwrite(fd, data->data + at, data->size - at, (off_t)at);

		if (n < 0 && errno != EINTR)
			return error_errno();
		at += n > 0 ? (size_t)n : 0;
	}
	return ftruncate(fd, (off_t)data->size) ? error_errno() : 0;
}

/* Writes the answer with its header, now complete, unless err is set; frees it. 0, err, -errno. */
static int answer_end(int fd, int err, const void *header, size_t bytes, struct buffer *out)
{
	if (!err) {
		memcpy(out->data, header, bytes);
		err = memory_write(fd, out);
	}
	buffer_free(out);
	return err;
}

static void process_describe(const struct trace_process *info, uint32_t layer, uint64_t now_ns,
			     struct sums_process *out)
{
	out->pid = info->tgid;
	out->mode = info->mode;
	out->layer = layer;
	out->layers = info->layers;
	out->python_version = info->python_version;
	out->start_ns = info->start_ns;
	out->rss_bytes = info->rss_bytes;
	out->new_blocks = info->coverage.new_blocks;
	out->seen_blocks = info->coverage.seen_blocks;
	if (info->layers & 1u << layer)
		out->flags |= SUMS_LAYER;
	if (info->sample_bytes || (layer == EVENT_LAYER_NATIVE && info->self_sampled))
		out->flags |= SUMS_SAMPLED;
	if (info->tasks)
		out->flags |= SUMS_TELLS | (info->label[0] ? SUMS_VALUES : 0);
	if (info->mode == EVENT_MODE_WINDOWS && layer == EVENT_LAYER_PYTHON)
		out->flags |= SUMS_WINDOWS;
	if (info->coverage.time_ns && layer == EVENT_LAYER_PYTHON) {
		out->flags |= SUMS_WALKED;
		out->walk_ns =
			now_ns > info->coverage.time_ns ? now_ns - info->coverage.time_ns : 0;
	}
	memcpy(out->name, info->name, sizeof(info->name));
	memcpy(out->container, info->container, sizeof(info->container));
}

struct sums_entries {
	struct sums_process *process;
	struct buffer *out;
};

static int entry_add(void *context, uint32_t stack, const struct trace_sum *sum)
{
	struct sums_entries *entries = context;
	const struct sums_entry entry = {.stack = stack,
					 .size = sum->size,
					 .count = sum->count,
					 .allocated = sum->allocated};

	entries->process->entries++;
	return buffer_append(entries->out, &entry, sizeof(entry));
}

/* Errors as those of trace_sums_changed(). */
static int changes_add(const struct trace *trace, size_t index, uint32_t since,
		       struct sums_process *process, struct buffer *out)
{
	struct sums_entries entries = {.process = process, .out = out};
	int err = trace_sums_changed(trace, index, process->layer, since, entry_add, &entries);

	if (!err)
		process->flags |= SUMS_CHANGES;
	return err;
}

/* ages: as trace_sums(). */
static int entries_add(const struct trace *trace, size_t index, const struct ages *ages,
		       struct sums_process *process, struct buffer *out)
{
	struct sums_entries entries = {.process = process, .out = out};
	struct trace_sum *sums = calloc(process->stacks + 1ul, sizeof(*sums));
	int err = sums ? buffer_reserve(out, process->stacks * sizeof(struct sums_entry)) : -ENOMEM;

	if (!err && process->flags & SUMS_LAYER)
		trace_sums(trace, index, process->layer, ages, sums);
	for (uint32_t i = 0; !err && i < process->stacks; i++)
		if (sums[i].count + sums[i].allocated > 0)
			err = entry_add(&entries, i, &sums[i]);
	free(sums);
	return err;
}

struct owner_entries {
	struct sums_process *process;
	enum request_by by;
	struct buffer *out;
};

static int owner_entry_put(struct owner_entries *entries, const struct sums_entry *entry)
{
	if (entry->stack >= entries->process->stacks)
		return 0;
	entries->process->entries++;
	return buffer_append(entries->out, entry, sizeof(*entry));
}

static int owner_entry_add(void *context, const struct trace_thread_sum *sum)
{
	struct owner_entries *entries = context;
	const struct sums_entry entry = {.stack = sum->stack,
					 .owner = entries->by == REQUEST_BY_TASK ? sum->task
										 : sum->tid,
					 .size = sum->size,
					 .count = sum->count};

	return owner_entry_put(entries, &entry);
}

static int age_entry_add(void *context, const struct trace_age_sum *sum)
{
	const struct sums_entry entry = {
		.stack = sum->stack, .owner = sum->age, .size = sum->size, .count = sum->count};

	return owner_entry_put(context, &entry);
}

/* By stack and age. ages: only of these; NULL: of all. -ENODATA: the layer has none. */
static int ages_add(const struct trace *trace, size_t index, const struct ages *ages,
		    struct sums_process *process, struct buffer *out)
{
	struct owner_entries entries = {.process = process, .out = out};
	int err = process->flags & SUMS_LAYER ? trace_age_sums(trace, index, process->layer, ages,
							       age_entry_add, &entries)
					      : -ENODATA;

	if (!err)
		process->flags |= SUMS_AGES;
	return err;
}

/* By stack and thread, or task. -ENODATA: they are not known; nothing was added. */
static int owners_add(const struct trace *trace, size_t index, enum request_by by,
		      struct sums_process *process, struct buffer *out)
{
	struct owner_entries entries = {.process = process, .by = by, .out = out};
	struct sums_thread thread = {0};
	const char *name;
	size_t cursor = 0;
	int err = -ENODATA;

	if (by == REQUEST_BY_THREAD || (by == REQUEST_BY_TASK && process->flags & SUMS_TELLS))
		err = trace_thread_sums(trace, index, process->layer, owner_entry_add, &entries);
	if (err)
		return err;
	process->flags |= by == REQUEST_BY_TASK ? SUMS_TASKS : SUMS_THREADS;
	if (by == REQUEST_BY_TASK)
		return 0;
	while (!err && trace_thread_named(trace, index, &cursor, &thread.tid, &name)) {
		snprintf(thread.name, sizeof(thread.name), "%s", name);
		process->threads++;
		err = buffer_append(out, &thread, sizeof(thread));
	}
	return err;
}

static int process_add(const struct trace *trace, size_t index, const struct request *request,
		       const struct sums_facts *facts, uint64_t now_ns, struct buffer *out)
{
	uint32_t layer = request->layer;
	const struct trace_process *info = trace_process_at(trace, index);
	struct sums_process process = {.stacks = (uint32_t)trace_stack_count(trace, index)};
	size_t at = out->size;

	process_describe(info, layer ? layer - 1 : trace_first_layer(info), now_ns, &process);
	if (process.layer < EVENT_LAYER_TABLES)
		process.peak_bytes = info->tables[process.layer].peak_bytes;
	const struct collections *collections =
		facts->collections ? facts->collections(facts->context, index, info->tgid) : NULL;
	if (collections)
		process.collections = *collections;
	if (process.layer == trace_first_layer(info))
		trace_rate(trace, index, &process.rate);
	const struct ages ages = {.least_ns = request->older_ms * AGE_UNIT_NS,
				  .most_ns = request->younger_ms ? request->younger_ms * AGE_UNIT_NS
								 : UINT64_MAX,
				  .until_realtime_ns = UINT64_MAX};
	bool aged = ages_any(&ages);
	int err = buffer_append(out, &process, sizeof(process));

	process.strings = strings_count(trace_strings(trace, index));
	if (!err)
		err = request->by == REQUEST_BY_AGE
			      ? ages_add(trace, index, aged ? &ages : NULL, &process, out)
		      : aged ? -ENODATA
			     : owners_add(trace, index, request->by, &process, out);
	if (request->by == REQUEST_BY_STACK && !aged &&
	    trace_has_allocated(trace, index, process.layer))
		process.flags |= SUMS_ALLOCATED;
	if (err == -ENODATA && request->by == REQUEST_BY_STACK && !aged &&
	    process.flags & SUMS_LAYER)
		err = changes_add(trace, index, request->since, &process, out);
	if (err == -ENODATA)
		err = entries_add(trace, index, aged ? &ages : NULL, &process, out);
	if (!err)
		memcpy(out->data + at, &process, sizeof(process));
	return err;
}

int sums_write(int fd, struct trace *trace, const struct request *request,
	       const struct sums_facts *facts)
{
	const struct event_loss *loss = trace_loss(trace);
	uint64_t begin_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID), counts[LOSS_COUNT];
	struct sums_header header = {.magic = SUMS_MAGIC,
				     .time_ns = clock_ns(CLOCK_MONOTONIC),
				     .records = facts->records,
				     .tracer_bytes = trace_memory(trace),
				     .cost = facts->cost,
				     .machine_took = facts->machine_took,
				     .machine_limit = facts->machine_limit,
				     .machine_part = facts->machine_part};
	struct buffer out = {0};
	int err = memory_check(fd) ?: buffer_append(&out, &header, sizeof(header));

	for (size_t i = 0; i < LOSS_COUNT; i++)
		counts[i] = loss->counts[i];
	header.lost_events = loss_events(counts);
	for (size_t i = 0; !err && i < trace_process_count(trace); i++) {
		const struct trace_process *info = trace_process_at(trace, i);

		if (!info || info->end != TRACE_RUNNING) {
			header.ended += info != NULL;
			continue;
		}
		header.processes++;
		err = process_add(trace, i, request, facts, header.time_ns, &out);
	}
	header.number = trace_sums_reported(trace);
	header.cpu_ns = facts->cpu_ns + clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
	return answer_end(fd, err, &header, sizeof(header), &out);
}

static int stack_add(struct trace *trace, size_t process, uint32_t index, struct buffer *out)
{
	const struct trace_traceback traceback = trace_traceback_at(trace, process, index);
	const struct stacks_entry entry = {traceback.nframe, traceback.total};
	int err = buffer_append(out, &entry, sizeof(entry));

	for (uint32_t i = 0; !err && i < traceback.nframe; i++) {
		const struct trace_frame *from = &traceback.frames[i];
		const struct stacks_frame frame = {
			.filename = from->filename, .function = from->function, .line = from->line};

		err = buffer_append(out, &frame, sizeof(frame));
	}
	return err;
}

static int string_add(const char *text, struct buffer *out)
{
	static const char padding[8];
	uint64_t bytes = strlen(text);

	return buffer_append(out, &bytes, sizeof(bytes)) ?: buffer_append(out, text, bytes)
		?: buffer_append(out, padding, -bytes % 8);
}

int stacks_write(int fd, struct trace *trace, size_t process, uint32_t first, uint32_t strings)
{
	const struct trace_process *info = trace_process_at(trace, process);
	uint64_t begin_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	uint32_t count = (uint32_t)trace_stack_count(trace, process);
	struct stacks_header header = {.magic = SUMS_MAGIC,
				       .pid = info->tgid,
				       .start_ns = info->start_ns,
				       .first = first,
				       .string_first = strings};
	struct buffer out = {0};
	int err = memory_check(fd) ?: buffer_append(&out, &header, sizeof(header));

	for (; !err && first + header.count < count && header.count < STACKS_AT_ONCE;
	     header.count++)
		err = stack_add(trace, process, first + header.count, &out);
	header.strings = strings_count(trace_strings(trace, process));
	for (; !err && strings + header.string_count < header.strings &&
	       header.string_count < STRINGS_AT_ONCE;
	     header.string_count++)
		err = string_add(
			strings_get(trace_strings(trace, process), strings + header.string_count),
			&out);
	header.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
	return answer_end(fd, err, &header, sizeof(header), &out);
}
