/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which thread has allocated what is alive: sums by stack, thread and tracemalloc's domain, made
 * for each snapshot from the blocks, which remember their thread. The kernel uses the number of a
 * thread that has ended for another one later; both are then one thread here.
 */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "trace/state.h"

struct thread_sum {
	uint32_t stack, tid, domain;
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

int trace_thread_nameless(const struct trace *trace, size_t index, size_t *cursor, uint32_t *tid)
{
	const struct process_state *process =
		trace_process_at(trace, index) ? trace->processes[index] : NULL;

	while (process && !process->table_kept && *cursor < process->thread_count) {
		const struct thread_entry *thread = &process->threads[(*cursor)++];

		if (thread->name[0])
			continue;
		*tid = thread->tid;
		return 1;
	}
	return 0;
}

int trace_thread_named(const struct trace *trace, size_t index, size_t *cursor, uint32_t *tid,
		       const char **name)
{
	const struct process_state *process =
		trace_process_at(trace, index) ? trace->processes[index] : NULL;

	while (process && !process->table_kept && *cursor < process->thread_count) {
		const struct thread_entry *thread = &process->threads[(*cursor)++];

		if (!thread->name[0])
			continue;
		*tid = thread->tid;
		*name = thread->name;
		return 1;
	}
	return 0;
}

static int sum_find(struct thread_sums *sums, const struct block *block, struct thread_sum **out)
{
	uint64_t key = ((uint64_t)block->stack << 32 | block->thread) + hash_u64(block->domain);
	uint32_t at;
	int err;

	for (; (at = id_map_find(&sums->index, key)) != ID_MAP_NONE; key++) {
		*out = &sums->items[at];
		if ((*out)->stack == block->stack && (*out)->tid == block->thread &&
		    (*out)->domain == block->domain)
			return 0;
	}
	err = array_reserve_in(sums->account, &sums->items, &sums->capacity, sums->count, 1,
			       sizeof(*sums->items));
	if (!err)
		err = id_map_put(&sums->index, key, (uint32_t)sums->count);
	if (err)
		return err;
	*out = &sums->items[sums->count++];
	**out = (struct thread_sum){
		.stack = block->stack, .tid = block->thread, .domain = block->domain};
	return 0;
}

static int table_sum(const struct process_state *process, enum event_layer layer,
		     struct thread_sums *sums)
{
	const struct block *block;
	size_t cursor = 0;
	int err = 0;

	while (!err && (block = blocks_next(process->blocks[layer], &cursor))) {
		struct thread_sum *sum;

		err = sum_find(sums, block, &sum);
		if (err)
			break;
		sum->units += state_activity_units(process, layer, block);
		sum->bytes += state_bytes(process, layer, block);
	}
	return err;
}

int trace_thread_sums(const struct trace *trace, size_t index, enum event_layer layer,
		      int (*add)(void *context, const struct trace_thread_sum *sum), void *context)
{
	const struct process_state *process =
		trace_process_at(trace, index) ? trace->processes[index] : NULL;
	struct thread_sums sums = {0};
	int err;

	if (!process || process->table_kept || !state_activity_known(process, BESIDE_THREAD, layer))
		return -ENODATA;
	sums.index.seed = process->tids.seed;
	err = table_sum(process, layer, &sums);
	for (size_t i = 0; !err && i < sums.count; i++) {
		const struct thread_sum *sum = &sums.items[i];

		err = add(context,
			  &(struct trace_thread_sum){.stack = sum->stack,
						     .tid = sum->tid,
						     .size = (double)sum->bytes,
						     .count = (double)sum->units / ACTIVITY_UNIT});
	}
	id_map_free(&sums.index);
	array_release(NULL, &sums.items, &sums.capacity, sizeof(*sums.items));
	return err;
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

static int layer_add(const struct process_state *process, enum event_layer layer,
		     const uint32_t *tracebacks, struct builder *builder)
{
	struct thread_sums sums = {
		.account = builder->account,
		.index = {.account = builder->account, .seed = process->tids.seed}};
	int err = table_sum(process, layer, &sums), sole = sums.count != 0;

	for (size_t i = 0; i < sums.count; i++)
		sole &= sums.items[i].tid == sums.items[0].tid;
	if (sole && !err)
		sole_set(process, layer, sums.items[0].tid, &builder->snapshot->meta);
	for (size_t i = 0; !err && !sole && i < sums.count; i++) {
		const struct thread_sum *sum = &sums.items[i];
		const struct snapshot_trace trace = {.traceback = tracebacks[sum->stack],
						     .domain = sum->domain,
						     .thread = sum->tid};

		err = trace.traceback == UINT32_MAX
			      ? -EDQUOT
			      : state_sums_add(builder, SNAPSHOT_BESIDE(BESIDE_THREAD, layer),
					       &trace, sum->units, sum->bytes);
	}
	id_map_free(&sums.index);
	array_release(builder->account, &sums.items, &sums.capacity, sizeof(*sums.items));
	return err;
}

int state_threads_add(const struct process_state *process, const uint32_t *tracebacks,
		      struct builder *builder)
{
	int err = 0;

	for (enum event_layer layer = 0; !err && layer < EVENT_LAYER_TABLES; layer++)
		if (state_activity_known(process, BESIDE_THREAD, layer))
			err = layer_add(process, layer, tracebacks, builder);
	for (size_t i = 0; !err && i < process->thread_count; i++)
		if (process->threads[i].name[0])
			err = builder_thread(builder, process->threads[i].tid,
					     process->threads[i].name);
	return err;
}
