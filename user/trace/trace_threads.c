/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which thread, and which asyncio task, has allocated what is alive: sums by stack, owner and
 * tracemalloc's domain, made for each snapshot from the blocks, which remember their owner; in
 * windows estimates, of threads or of tasks, if they are asked for (state_windows_by_owner()). The
 * kernel uses the number of a thread that has ended for another one later; both are then one thread
 * here. So are tasks of one name.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/windowed.h"
#include "trace/estimate/windowed_large.h"
#include "trace/state.h"
#include "util/array.h"
#include "util/hash.h"
#include "util/utf8.h"

struct thread_sum {
	uint32_t stack, owner, domain;
	uint64_t units, bytes;
};

struct thread_sums {
	struct account *account;
	struct id_map index;
	struct thread_sum *items;
	size_t count, capacity;
};

int state_thread_name(struct process_state *process, const struct event_thread *event)
{
	uint32_t index = id_map_find(&process->tids, event->header.tid);

	if (index == ID_MAP_NONE) /* it has not allocated anything */
		return 0;
	memcpy(process->threads[index].name, event->name, sizeof(event->name));
	process->threads[index].name[sizeof(event->name) - 1] = '\0';
	return 0;
}

/* The next thread that has a name, or that has none; NULL: there is none. */
static const struct thread_entry *thread_next(const struct trace *trace, size_t index,
					      size_t *cursor, int named)
{
	const struct process_state *process = state_running(trace, index);

	while (process && *cursor < process->thread_count) {
		const struct thread_entry *thread = &process->threads[(*cursor)++];

		if (!thread->name[0] == !named)
			return thread;
	}
	return NULL;
}

int trace_thread_nameless(const struct trace *trace, size_t index, size_t *cursor, uint32_t *tid)
{
	const struct thread_entry *thread = thread_next(trace, index, cursor, 0);

	if (thread)
		*tid = thread->tid;
	return thread != NULL;
}

int trace_thread_named(const struct trace *trace, size_t index, size_t *cursor, uint32_t *tid,
		       const char **name)
{
	const struct thread_entry *thread = thread_next(trace, index, cursor, 1);

	if (thread) {
		*tid = thread->tid;
		*name = thread->name;
	}
	return thread != NULL;
}

static int sum_find(struct thread_sums *sums, const struct block *block, struct thread_sum **out)
{
	uint64_t key = ((uint64_t)block->stack << 32 | block->owner) + hash_u64(block->domain);
	uint32_t at;
	int err;

	for (; (at = id_map_find(&sums->index, key)) != ID_MAP_NONE; key++) {
		*out = &sums->items[at];
		if ((*out)->stack == block->stack && (*out)->owner == block->owner &&
		    (*out)->domain == block->domain)
			return 0;
	}
	err = ARRAY_RESERVE(sums->account, sums, items, count, capacity, 1)
		      ?: id_map_put(&sums->index, key, (uint32_t)sums->count);
	if (err)
		return err;
	*out = &sums->items[sums->count++];
	**out = (struct thread_sum){
		.stack = block->stack, .owner = block->owner, .domain = block->domain};
	return 0;
}

static int table_sum(const struct process_state *process, enum event_layer layer,
		     struct thread_sums *sums)
{
	const struct block *block;
	int err = 0;

	for (size_t cursor = 0; !err && (block = blocks_next(process->blocks[layer], &cursor));) {
		struct thread_sum *sum;

		if (state_block_stands(process, layer, block))
			continue;
		err = sum_find(sums, block, &sum);
		if (err)
			break;
		sum->units += state_activity_units(process, layer, block);
		sum->bytes += state_bytes(process, layer, block);
	}
	return err;
}

/* Whom to pass estimates by thread or task to. */
struct owner_sums {
	int (*add)(void *context, const struct trace_thread_sum *sum);
	void *context;
};

static int estimates_sum(void *context, const struct snapshot_trace *rows,
			 const struct calibrate_result *result, uint64_t ages_error_ns)
{
	const struct owner_sums *to = context;
	int err = 0;

	(void)ages_error_ns;
	for (size_t i = 0; !err && i < result->row_count; i++) {
		const struct trace_thread_sum sum = {
			.stack = rows[i].traceback,
			.tid = rows[i].thread,
			.task = rows[i].task,
			.size = result->rows[i].blocks * (double)rows[i].bytes,
			.count = result->rows[i].blocks,
		};

		err = result->rows[i].blocks > 0 ? to->add(to->context, &sum) : 0;
	}
	return err;
}

/* By stack, of the blocks of windows. */
static int estimates_visit(const struct process_state *process, struct owner_sums *to)
{
	const struct windowed_split split = {.by_owner = true};
	uint32_t *stacks = state_stacks_all(process);
	int err = stacks ? trace_windowed_estimate(process, stacks, &split, estimates_sum, to)
			 : -ENOMEM;

	free(stacks);
	return err;
}

int trace_thread_sums(const struct trace *trace, size_t index, enum event_layer layer,
		      int (*add)(void *context, const struct trace_thread_sum *sum), void *context)
{
	const struct process_state *process = state_at(trace, index);
	struct owner_sums to = {add, context};
	struct thread_sums sums = {0};
	int err;

	if (!process || process->table_kept || !state_activity_known(process, EXTRA_THREAD, layer))
		return -ENODATA;
	sums.index.seed = process->tids.seed;
	err = table_sum(process, layer, &sums);
	for (size_t i = 0; !err && i < sums.count; i++) {
		const struct thread_sum *sum = &sums.items[i];
		const struct block_owner *owner = block_owners_get(&process->owners, sum->owner);

		err = add(context,
			  &(struct trace_thread_sum){.stack = sum->stack,
						     .tid = owner->tid,
						     .task = owner->task,
						     .size = (double)sum->bytes,
						     .count = (double)sum->units / ACTIVITY_UNIT});
	}
	id_map_free(&sums.index);
	ARRAY_RELEASE(NULL, &sums, items, capacity);
	return err || !state_windows_by_owner(&process->info) ? err : estimates_visit(process, &to);
}

static void sole_set(const struct process_state *process, enum event_layer layer, uint32_t tid,
		     struct snapshot_meta *meta)
{
	uint32_t index = id_map_find(&process->tids, tid);

	meta->sole_thread[layer] = tid;
	if (index != ID_MAP_NONE)
		memcpy(meta->sole_thread_name[layer], process->threads[index].name,
		       sizeof(meta->sole_thread_name[layer]));
}

/* Is all of it one thread's, in no task? */
static bool is_sole(const struct process_state *process, const struct thread_sums *sums)
{
	int sole = sums->count != 0;

	for (size_t i = 0; i < sums->count && sole; i++)
		sole = sums->items[i].owner == sums->items[0].owner;
	return sole && !block_owners_get(&process->owners, sums->items[0].owner)->task;
}

/* The name of a block_owner's task; "" for 0. *name: numbered, or borrowed from the process. */
static void task_name(const struct process_state *process, uint32_t task, char numbered[32],
		      const char **name)
{
	*name = task & TRACE_TASK_NUMBERED ? numbered : strings_get(process->strings, task);
	if (task & TRACE_TASK_NUMBERED)
		snprintf(numbered, 32, "Task-%u", task & ~TRACE_TASK_NUMBERED);
}

/* The id of a task's name in the snapshot; 0: no task. */
static int task_intern(const struct process_state *process, uint32_t task, struct builder *builder,
		       uint32_t *id)
{
	char numbered[32];
	const char *name;

	task_name(process, task, numbered, &name);
	return strings_intern(builder->snapshot->strings, name, strlen(name), id);
}

static int sum_add(const struct process_state *process, enum event_layer layer,
		   const struct thread_sum *sum, const uint32_t *tracebacks,
		   struct builder *builder)
{
	const struct block_owner *owner = block_owners_get(&process->owners, sum->owner);
	/* Estimates by task tell no threads. */
	bool tells_thread = !state_windows_by_owner(&process->info) || !process->info.tasks;
	struct snapshot_trace trace = {.traceback = tracebacks[sum->stack],
				       .domain = sum->domain,
				       .thread = tells_thread ? owner->tid : 0};
	int err = trace.traceback == UINT32_MAX ? -EDQUOT : 0;

	if (!err)
		err = task_intern(process, owner->task, builder, &trace.task);
	return err ? err
		   : state_sums_add(builder, SNAPSHOT_EXTRA(EXTRA_THREAD, layer), &trace,
				    sum->units, sum->bytes);
}

struct estimates_adder {
	const struct process_state *process;
	struct builder *builder;
};

/* Rows have the process's own numbers of tasks. */
static int estimates_take(void *context, const struct snapshot_trace *rows,
			  const struct calibrate_result *result, uint64_t ages_error_ns)
{
	const struct estimates_adder *adder = context;
	enum event_layer layer = state_window_layer(&adder->process->info);
	struct snapshot_trace *named = calloc(result->row_count + 1, sizeof(*named));
	int err = named ? 0 : -ENOMEM;

	(void)ages_error_ns;
	for (size_t i = 0; !err && i < result->row_count; i++) {
		named[i] = rows[i];
		err = task_intern(adder->process, rows[i].task, adder->builder, &named[i].task);
	}
	err = err
		      ?: windowed_owners_add(adder->builder, named, result,
					     SNAPSHOT_EXTRA(EXTRA_THREAD, layer));
	free(named);
	return err;
}

static int layer_add(const struct process_state *process, enum event_layer layer,
		     const uint32_t *tracebacks, struct builder *builder)
{
	const struct windowed_split split = {.by_owner = true};
	struct estimates_adder adder = {process, builder};
	bool windows = state_windows_by_owner(&process->info);
	struct thread_sums sums = {
		.account = builder->account,
		.index = {.account = builder->account, .seed = process->tids.seed}};
	int err = table_sum(process, layer, &sums),
	    sole = !err && !windows && is_sole(process, &sums);

	if (sole)
		sole_set(process, layer,
			 block_owners_get(&process->owners, sums.items[0].owner)->tid,
			 &builder->snapshot->meta);
	for (size_t i = 0; !err && !sole && i < sums.count; i++)
		err = sum_add(process, layer, &sums.items[i], tracebacks, builder);
	id_map_free(&sums.index);
	ARRAY_RELEASE(builder->account, &sums, items, capacity);
	if (!err && windows)
		err = trace_windowed_estimate(process, tracebacks, &split, estimates_take, &adder);
	return err;
}

int state_threads_add(const struct process_state *process, const uint32_t *tracebacks,
		      struct builder *builder)
{
	int err = 0;

	for (enum event_layer layer = 0; !err && layer < EVENT_LAYER_TABLES; layer++)
		if (state_activity_known(process, EXTRA_THREAD, layer))
			err = layer_add(process, layer, tracebacks, builder);
	for (size_t i = 0; !err && i < process->thread_count; i++)
		if (process->threads[i].name[0])
			err = builder_thread(builder, process->threads[i].tid,
					     process->threads[i].name);
	return err;
}

/* --- tasks ------------------------------------------------------------------------------------ */

/*
 * asyncio tasks. A task without a name of its own has a number, which takes no memory: a server
 * may start one for each request.
 */

#define TASK_TEXT      (4 * UTF8_ENCODED(EVENT_TASK_BYTES) + 16)
#define WIDE_DIGITS    40 /* of 128 bits */
#define HEX_DIGITS_MAX 100

/* A bytes object as Python writes it. */
static size_t raw_text(char *text, const uint8_t *raw, uint32_t bytes, bool is_cut)
{
	size_t size = (size_t)sprintf(text, "b'");

	for (uint32_t i = 0; i < bytes; i++)
		size += (size_t)sprintf(
			text + size,
			raw[i] < ' ' || raw[i] > '~' || strchr("'\\", raw[i]) ? "\\x%02x" : "%c",
			raw[i]);
	return size + (size_t)sprintf(text + size, "'%s", is_cut ? "…" : "");
}

/* An int as Python's format() has it, with "d" or "0Nx". */
static size_t integer_text(char *text, uint64_t high, uint64_t low, bool is_negative,
			   int hex_digits)
{
	unsigned __int128 value = (unsigned __int128)high << 64 | low;
	unsigned base = hex_digits ? 16 : 10;
	char digits[WIDE_DIGITS];
	int count = 0;

	if (hex_digits > HEX_DIGITS_MAX)
		hex_digits = HEX_DIGITS_MAX;
	do
		digits[count++] = "0123456789abcdef"[value % base];
	while (value /= base);
	size_t size = (size_t)sprintf(text, "%s", is_negative ? "-" : "");
	for (int i = (int)size + count; i < hex_digits; i++)
		text[size++] = '0';
	while (count)
		text[size++] = digits[--count];
	text[size] = '\0';
	return size;
}

static size_t uuid_text(char *text, uint64_t high, uint64_t low)
{
	return (size_t)sprintf(text, "%08x-%04x-%04x-%04x-%012" PRIx64, (unsigned)(high >> 32),
			       (unsigned)(high >> 16 & 0xffff), (unsigned)(high & 0xffff),
			       (unsigned)(low >> 48), low & 0xffffffffffff);
}

/* 0, -ENOMEM, -EDQUOT. */
static int event_task_intern(struct process_state *process, const struct event_task *event,
			     uint32_t *task)
{
	static const char *const words[] = {"False", "True", "None", "Ellipsis"};
	uint32_t bytes = event->bytes < EVENT_TASK_BYTES ? event->bytes : EVENT_TASK_BYTES;
	int64_t number = (int64_t)event->number;
	char text[TASK_TEXT];
	uint64_t high = 0;
	size_t size;

	if (event->how == EVENT_TASK_WIDE || event->how == EVENT_TASK_UUID)
		memcpy(&high, event->name, sizeof(high));
	switch (event->how) {
	case EVENT_TASK_NONE:
		*task = 0;
		return 0;
	case EVENT_TASK_NUMBERED:
		*task = TRACE_TASK_NUMBERED | (uint32_t)event->number;
		if (event->number < TRACE_TASK_NUMBERED)
			return 0;
		size = (size_t)snprintf(text, sizeof(text), "Task-%" PRIu64,
					(uint64_t)event->number);
		break;
	case EVENT_TASK_NAMED:
		size = utf8_from_python(text, event->name, event->kind, bytes);
		if (event->bytes > bytes)
			size += (size_t)snprintf(text + size, sizeof(text) - size, "…");
		if (!size) /* the empty string's id stands for no task */
			size = (size_t)snprintf(text, sizeof(text), "\"\"");
		break;
	case EVENT_TASK_INT:
		size = integer_text(text, 0, number < 0 ? -event->number : event->number,
				    number < 0, event->kind);
		break;
	case EVENT_TASK_WIDE:
		size = integer_text(text, high, event->number, event->bytes, event->kind);
		break;
	case EVENT_TASK_UUID:
		size = uuid_text(text, high, event->number);
		break;
	case EVENT_TASK_BOOL:
		size = (size_t)snprintf(text, sizeof(text), "%s", words[event->number & 3]);
		break;
	case EVENT_TASK_HASHED:
		size = (size_t)sprintf(text, "#%016" PRIx64, (uint64_t)event->number);
		break;
	case EVENT_TASK_RAW:
		size = raw_text(text, event->name, bytes, event->bytes > bytes);
		break;
	case EVENT_TASK_OTHER:
		size = (size_t)snprintf(text, sizeof(text), "(a type that is not read)");
		break;
	default:
		*task = process->unknown;
		return 0;
	}
	return strings_intern(process->strings, text, size, task);
}

/* The bytes of its name that the record has to have. */
static uint32_t event_task_bytes(const struct event_task *event)
{
	switch (event->how) {
	case EVENT_TASK_NAMED:
	case EVENT_TASK_RAW:
		return event->bytes < EVENT_TASK_BYTES ? event->bytes : EVENT_TASK_BYTES;
	case EVENT_TASK_WIDE:
	case EVENT_TASK_UUID:
		return sizeof(uint64_t);
	default:
		return 0;
	}
}

int state_task(struct process_state *process, const struct event_task *event)
{
	struct thread_entry *thread;

	if (event->how > EVENT_TASK_HASHED ||
	    event->header.size - EVENT_TASK_MIN < event_task_bytes(event) ||
	    (event->how == EVENT_TASK_NAMED &&
	     ((event->kind != 1 && event->kind != 2 && event->kind != 4) ||
	      event->bytes % event->kind)))
		return -EBADMSG;
	thread = state_thread_find(process, event->header.tid);
	if (!thread)
		return 0;
	thread->owner = OWNER_NONE;
	if (event_task_intern(process, event, &thread->task))
		thread->task = process->unknown;
	return 0;
}
