/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that sample their native blocks themselves (EVENT_SELF_SAMPLED). Their native table has
 * only blocks that they have reported, and a second table of the same addresses has the bytes that
 * each of them stands for. What malloc's probes report of such a process is ignored: some may be in
 * a file that other processes map, too.
 */
#include <errno.h>

#include "process_tables/process_tables.h"
#include "snapshot/estimate.h"

uint64_t state_weight(const struct process_state *process, const struct block *block)
{
	const struct block *weight =
		process->weights ? blocks_find(process->weights, block->address, block->domain)
				 : NULL;

	return weight ? weight->bytes : 0;
}

uint64_t state_bytes(const struct process_state *process, enum event_layer layer,
		     const struct block *block)
{
	uint64_t weight = layer == EVENT_LAYER_NATIVE ? state_weight(process, block) : 0;

	return weight ?: estimate_bytes(process->info.sample_bytes, block->bytes);
}

double state_chance(const struct process_state *process, enum event_layer layer,
		    const struct block *block)
{
	uint64_t weight = layer == EVENT_LAYER_NATIVE ? state_weight(process, block) : 0;

	return weight ? estimate_chance_weighted(block->bytes, 1, weight)
		      : estimate_chance(process->info.sample_bytes, block->bytes);
}

int state_is_ignored(const struct process_state *process, const struct event_alloc *event)
{
	switch (event->header.type) {
	case EVENT_ALLOC:
	case EVENT_REALLOC_DONE:
		return process->weights && (event->api & EVENT_API_MASK) == EVENT_API_NATIVE;
	case EVENT_REALLOC:
	case EVENT_REALLOC_FAIL:
		return process->weights && (((const struct event_free *)event)->api &
					    EVENT_API_MASK) == EVENT_API_NATIVE;
	default:
		return 0;
	}
}

/* No request of malloc's is in progress any more. */
static void threads_forget(struct process_state *process)
{
	for (size_t i = 0; i < process->thread_count; i++) {
		process->threads[i].pending[EVENT_LAYER_NATIVE].state = PENDING_NONE;
		process->threads[i].native_freed = 0;
	}
}

int state_self_sampled(struct process_state *process, uint64_t time_ns)
{
	struct trace_process *info = &process->info;
	struct trace_table *table = &info->tables[EVENT_LAYER_NATIVE];
	struct blocks *weights, *empty;
	int err;

	if (!(info->layers & 1u << EVENT_LAYER_NATIVE) || time_ns < info->start_ns)
		return -EBADMSG;
	if (process->weights)
		return 0;
	err = blocks_new(&weights, process->account);
	if (err)
		return err;
	err = blocks_new(&empty, process->account);
	if (err) {
		blocks_free(weights);
		return err;
	}
	blocks_free(process->blocks[EVENT_LAYER_NATIVE]);
	process->blocks[EVENT_LAYER_NATIVE] = empty;
	process->weights = weights;
	*table = (struct trace_table){0};
	state_live_reset(process, EVENT_LAYER_NATIVE);
	state_peak_now(process, EVENT_LAYER_NATIVE);
	threads_forget(process);
	if (info->self_sampled)
		return 0;
	info->self_sampled = 1;
	info->self_sampled_ns = time_ns - info->start_ns;
	return 0;
}

int state_weights_clear(struct process_state *process)
{
	if (!process->weights)
		return 0;
	blocks_free(process->weights);
	process->weights = NULL;
	return state_self_sampled(process, process->info.start_ns);
}

/* Stores the block's weight, in place of that of a block whose free was not seen. */
static int weight_put(struct process_state *process, const struct event_alloc_weighted *event)
{
	const struct block weight = {.address = event->address, .bytes = event->weighted_bytes};
	struct block old;

	if (blocks_take(process->blocks[EVENT_LAYER_NATIVE], event->address, 0, &old)) {
		state_block_gone(process, EVENT_LAYER_NATIVE, &old);
		process->info.tables[EVENT_LAYER_NATIVE].replaced++;
	}
	return blocks_put(process->weights, &weight, &old);
}

int state_alloc_weighted(struct process_state *process, const struct event_alloc_weighted *event)
{
	struct trace_table *table = &process->info.tables[EVENT_LAYER_NATIVE];
	struct event_alloc alloc = {.header = event->header,
				    .address = event->address,
				    .bytes = event->bytes,
				    .stack_id = event->stack_id,
				    .api = EVENT_API_NATIVE};
	struct block weight;
	int err = state_self_sampled(process, event->header.time_ns);

	/* A block stands at least for itself. */
	if (!event->address || !event->bytes || event->weighted_bytes < event->bytes ||
	    event->weighted_bytes > TRACE_BYTES_MAX - table->live_bytes)
		return err ?: -EBADMSG;
	if (!err)
		err = weight_put(process, event);
	if (err < 0)
		return err;
	err = state_alloc(process, &alloc);
	if (err)
		blocks_take(process->weights, event->address, 0, &weight);
	return err;
}
