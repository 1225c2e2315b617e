/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations and frees. EVENT_REALLOC removes the old block from the table, because another thread
 * may be given its address before the realloc returns, and saves it with its thread.
 * EVENT_REALLOC_DONE discards the saved block and adds the new one; EVENT_REALLOC_FAIL restores it.
 * A thread has at most one pending realloc per layer: an older one that never ended is discarded.
 */
#include <errno.h>

#include "snapshot/estimate.h"
#include "trace/process/process_tables.h"
#include "util/array.h"

/* --- large ------------------------------------------------------------------------------------ */

/* What looks find at the addresses of malloc's blocks that were seen in windows. */

static void large_judge(struct process_state *process, const struct event_large_block *look)
{
	struct trace_windows *windows = &process->windows;
	struct sampled_block *sampled_block =
		sampled_blocks_find(&windows->sampled_blocks, look->address);
	const struct event_census_kind *kind = &look->kind;
	const struct block *block;
	uint64_t bytes;

	if (!sampled_block || !(sampled_block->flags & SAMPLED_BLOCK_LARGE))
		return;
	block = state_window_block(process, sampled_block);
	bytes = block ? block_allocator_bytes(block) : 0;
	/* Its thread may be about to take or to fill it. */
	if (!sampled_block->kind && windows->open &&
	    state_window_in_progress(process, block ? block->address : look->address))
		return;
	state_window_rechecked(process, sampled_block,
			       !block || kind->kind == EVENT_KIND_FREE || bytes > look->bytes,
			       kind);
}

int state_census_large(struct process_state *process, const struct event_census_large *event)
{
	if (!event->count || event->count > EVENT_LARGE_MAX ||
	    event->header.size != sizeof(*event) + event->count * sizeof(event->blocks[0]))
		return -EBADMSG;
	if (process->info.mode != EVENT_MODE_WINDOWS)
		return 0;
	if (event->used)
		process->windows.malloc_used = event->used;
	for (uint64_t i = 0; i < event->count; i++)
		if (event->blocks[i].address)
			large_judge(process, &event->blocks[i]);
	return 0;
}

/* --- weights ---------------------------------------------------------------------------------- */

/*
 * Processes that sample their native blocks themselves (EVENT_SELF_SAMPLED). Their native table has
 * only blocks that they have reported, and a second table of the same addresses has the bytes that
 * each of them stands for. What malloc's probes report of such a process is ignored: some may be in
 * a file that other processes map, too.
 */

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

bool state_is_ignored(const struct process_state *process, const struct event_alloc *event)
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

/* --- sizes ------------------------------------------------------------------------------------ */

/*
 * Compares the table with the objects in its blocks. A live block of the right size class may still
 * not be the one that the table has: its allocation was missed, and the table holds an earlier
 * block whose free was not traced. In about half of these cases the size derived from the object's
 * type differs from the table's.
 *
 * A pool and the table are read at different moments. So a block is noted when its pool is
 * reported, and counts only if the table still has it unchanged once all events from before the end
 * of the walk have been processed.
 */

#define SIZES_MAX 32768u /* per walk */

/*
 * The block of Python's own domain (0) that the allocator has at address; NULL: none that can be
 * compared.
 */
static const struct block *block_at(const struct process_state *process, uint64_t address)
{
	const struct block *block =
		blocks_at_allocator(process->blocks[EVENT_LAYER_PYTHON], address);

	return block && block->pooled && !block->rounded ? block : NULL;
}

static void size_note(struct process_state *process, uint64_t address, uint32_t object_bytes)
{
	struct census *census = &process->census;
	const struct block *block = block_at(process, address);

	if (!block || census->size_count == SIZES_MAX ||
	    ARRAY_RESERVE(census->old.account, census, sizes, size_count, size_capacity, 1))
		return;
	census->sizes[census->size_count++] =
		(struct census_size){address, block->bytes, block->stack, object_bytes};
}

int state_census_sizes(struct process_state *process, const struct event_census_sizes *event)
{
	if (event->count > EVENT_POOL_BLOCKS || !event->block_bytes ||
	    event->block_bytes > EVENT_SMALL_BYTES ||
	    event->address >
		    UINT64_MAX - (uint64_t)event->count * event->block_bytes - EVENT_HOOKS_BEFORE ||
	    event->header.size !=
		    sizeof(*event) + (event->count + 3) / 4 * 4 * sizeof(event->bytes[0]))
		return -EBADMSG;
	if (!process->census.running || process->census.id != event->id ||
	    process->info.mode == EVENT_MODE_GROWTH)
		return 0;
	for (uint32_t i = 0; i < event->count; i++)
		if (event->bytes[i])
			size_note(process, event->address + (uint64_t)i * event->block_bytes,
				  event->bytes[i]);
	return 0;
}

void state_sizes_judge(struct process_state *process)
{
	struct census *census = &process->census;
	struct snapshot_coverage *counts = &census->counts;

	for (size_t i = 0; i < census->size_count; i++) {
		const struct census_size *noted = &census->sizes[i];
		const struct block *block = block_at(process, noted->address);

		if (!block || block->bytes != noted->bytes || block->stack != noted->stack)
			continue;
		counts->typed_blocks++;
		counts->mistyped_blocks += (block->bytes + 7) / 8 * 8 != noted->object_bytes;
	}
	/* BPF's own walk does not inspect types: keep the previous figures. */
	if (!census->size_count) {
		counts->typed_blocks = process->info.coverage.typed_blocks;
		counts->mistyped_blocks = process->info.coverage.mistyped_blocks;
	}
}

/* --- state regions ---------------------------------------------------------------------------- */

/*
 * Mapped memory. It is a layer of its own. Arenas and large blocks lie inside it, so it is never
 * added to the blocks' sizes.
 */

#define ADDRESS_END (1ull << 56)

static int range_valid(uint64_t address, uint64_t bytes)
{
	return bytes && bytes <= ADDRESS_END && address <= ADDRESS_END - bytes;
}

/* Counts regions beyond the limit as dropped. */
static int counted(struct process_state *process, int err)
{
	process->info.counters.regions_dropped += err == -ENOSPC;
	return err == -ENOSPC ? 0 : err;
}

static int remap(struct process_state *process, const struct event_map *event, struct region region)
{
	const struct region *old = regions_find(&process->regions, event->old_address);

	/* Mapped from a file, or before tracing. */
	if (!old || !range_valid(event->old_address, event->old_bytes ? event->old_bytes : 1))
		return 0;
	region.accessible = old->accessible;
	int err = event->old_bytes ? regions_clear(&process->regions, event->old_address,
						   event->old_address + event->old_bytes)
				   : 0;
	return err ?: regions_set(&process->regions, &region);
}

int state_map(struct process_state *process, const struct event_map *event)
{
	struct region region = {.start = event->address,
				.end = event->address + event->bytes,
				.accessible = event->protection != 0};

	if (!range_valid(event->address, event->bytes))
		return -EBADMSG;
	if (event->header.type == EVENT_UNMAP)
		return counted(process, regions_clear(&process->regions, region.start, region.end));
	region.stack = state_stack_index(process, event->stack_id);
	if (event->header.type == EVENT_REMAP)
		return counted(process, remap(process, event, region));
	if (event->header.type == EVENT_PROTECT)
		return counted(process, regions_protect(&process->regions, &region));
	return counted(process, regions_set(&process->regions, &region));
}

/* --- state pages ------------------------------------------------------------------------------ */

int state_fault(struct process_state *process, const struct event_fault *event)
{
	if (!(process->info.layers & 1u << EVENT_LAYER_PAGES))
		return -EBADMSG;
	int err = pages_fault(&process->pages, event, state_stack_index(process, event->stack_id));

	if (account_is_full(err)) {
		process->info.counters.blocks_dropped++;
		process->info.counters.bytes_dropped += event->bytes;
	}
	return err;
}

int state_pages(struct process_state *process, const struct event_pages *event)
{
	if (!(process->info.layers & 1u << EVENT_LAYER_PAGES))
		return -EBADMSG;
	return pages_walk(&process->pages, event, process->info.sample_bytes != 0);
}

/* --- state blocks ----------------------------------------------------------------------------- */

static enum event_layer layer_of(uint32_t api)
{
	return (api & EVENT_API_MASK) == EVENT_API_NATIVE ? EVENT_LAYER_NATIVE : EVENT_LAYER_PYTHON;
}

/* The heap walk reads the interpreter's own count at an unknown moment, so the range is tracked. */
static void large_change(struct process_state *process, int by)
{
	struct census *census = &process->census;
	uint64_t *count = &process->info.large_blocks;

	*count += (uint64_t)(int64_t)by;
	if (*count < census->large_low)
		census->large_low = *count;
	if (*count > census->large_high)
		census->large_high = *count;
}

void state_block_gone(struct process_state *process, enum event_layer layer,
		      const struct block *block)
{
	struct block weight;

	state_live_change(process, layer, block, 1);
	state_activity_gone(process, layer, block);
	process->info.tables[layer].live_bytes -= state_bytes(process, layer, block);
	if (layer == EVENT_LAYER_NATIVE && process->weights)
		blocks_take(process->weights, block->address, block->domain, &weight);
	process->info.tables[layer].live_blocks--;
	large_change(process, -(int)block->large);
	process->info.rounded_blocks -= block->rounded;
	if (layer == state_window_layer(&process->info))
		state_window_gone(process, block);
}

int state_block_put(struct process_state *process, enum event_layer layer,
		    const struct block *block)
{
	struct trace_process *info = &process->info;
	struct trace_table *table = &info->tables[layer];
	uint64_t bytes = state_bytes(process, layer, block);
	struct block old;
	int needs_walk;

	if (!block->address || bytes > TRACE_BYTES_MAX - table->live_bytes)
		return -EBADMSG;
	/* Debugging hooks may ask malloc for it; their frees are seen. */
	info->pooled |= block->pooled && !block->hooked;
	needs_walk = layer == state_walked_layer(info);
	int replaced = blocks_put(process->blocks[layer], block, &old);
	if (replaced < 0)
		return replaced;
	if (replaced) {
		state_window_reused(process, layer, &old);
		state_block_gone(process, layer, &old);
		/* Where heap walks find deaths, others are often replaced without a free. */
		table->replaced += !needs_walk || (layer == EVENT_LAYER_PYTHON && !old.pooled &&
						   !info->large_windowed);
	}
	table->live_bytes += bytes;
	table->live_blocks++;
	state_live_change(process, layer, block, 0);
	large_change(process, block->large);
	info->rounded_blocks += block->rounded;
	if (!needs_walk && table->live_bytes > table->peak_bytes)
		state_peak_now(process, layer);
	return 0;
}

/*
 * Sets whether the block is in a pool or was passed on to malloc, because it is too large or has 0
 * bytes.
 */
static void location_set(struct block *block, uint32_t domain, int was_large)
{
	int pymalloc = domain == EVENT_API_MEM || domain == EVENT_API_OBJ;
	uint64_t bytes = block_allocator_bytes(block);

	block->large = was_large || domain == EVENT_API_LARGE ||
		       (pymalloc && bytes - 1 >= EVENT_SMALL_BYTES);
	/* In growth mode the block is a whole pool. */
	block->pooled = domain == EVENT_API_POOL || (pymalloc && !block->large);
	/*
	 * A passed-on block of 1 byte was requested with 0: pymalloc serves a real 1-byte request
	 * itself.
	 */
	if (domain == EVENT_API_LARGE && bytes == 1)
		block->bytes = 0;
}

static void thread_did(struct process_state *process, const struct event_header *header,
		       enum event_layer layer, uint64_t address, int freed)
{
	struct thread_entry *thread = state_thread_find(process, header->tid);

	if (thread && layer == EVENT_LAYER_NATIVE) {
		thread->native_freed = freed ? address : 0;
	} else if (thread) {
		thread->last_freed = freed;
		thread->last_address = address;
	}
}

/* The address of the block's pool; 0: not in a pool, or the size of pools is unknown. */
static uint64_t pool_of(const struct process_state *process, const struct block *block)
{
	uint64_t bytes = process->info.pool_bytes;

	return block->pooled && bytes ? block_allocator_address(block) / bytes * bytes : 0;
}

/*
 * A pool that is reinitialised for another size class hands out its first block first, so that
 * block determines the pool's size. Without memory the size stays unknown.
 */
static void pool_note(struct process_state *process, const struct block *block)
{
	uint64_t pool = pool_of(process, block), bytes = block_class_bytes(block);

	if (pool && block_allocator_address(block) == pool + EVENT_POOL_HEADER_BYTES &&
	    bytes <= process->info.pool_bytes)
		id_map_put(&process->pools, pool, (uint32_t)bytes);
}

/*
 * The layout of the block's pool: returns the block size, 0 if unknown, and the address of the
 * first block.
 */
static uint32_t pool_division(const struct process_state *process, const struct block *block,
			      uint64_t *first)
{
	uint64_t pool = pool_of(process, block);
	uint32_t bytes = pool ? id_map_find(&process->pools, pool) : ID_MAP_NONE;

	*first = pool + EVENT_POOL_HEADER_BYTES;
	return bytes == ID_MAP_NONE ? 0 : bytes;
}

/*
 * Is the address a block boundary in the pool's current layout? 0 if not, or if the layout is
 * unknown.
 */
static bool is_in_place(const struct process_state *process, const struct block *block)
{
	uint64_t first;
	uint32_t bytes = pool_division(process, block, &first);

	return bytes && !((block_allocator_address(block) - first) % bytes);
}

const struct block *state_block_containing(const struct process_state *process,
					   enum event_layer layer, uint64_t address)
{
	const struct block *block = blocks_containing(process->blocks[layer], address), *other;
	uint64_t first = 0;
	uint32_t bytes = block ? pool_division(process, block, &first) : 0;

	if (!bytes || is_in_place(process, block))
		return block;
	first += block->hooked ? EVENT_HOOKS_BEFORE : 0;
	if (address < first)
		return block;
	other = blocks_find(process->blocks[layer], address - (address - first) % bytes,
			    block->domain);
	return other ? other : block;
}

/* The thread has allocated a block. */
static void recent_put(struct recent *recent, uint64_t address)
{
	for (uint32_t i = RECENT_BLOCKS - 1; i; i--)
		recent->blocks[i] = recent->blocks[i - 1];
	recent->blocks[0] = address;
}

/*
 * The thread has freed a block: how many blocks it has allocated after that one. RECENT_BLOCKS: so
 * many or more, or it has not allocated it.
 */
static uint32_t recent_take(struct recent *recent, uint64_t address)
{
	uint32_t later = 0;

	while (later < RECENT_BLOCKS && recent->blocks[later] != address)
		later++;
	if (later < RECENT_BLOCKS)
		recent->blocks[later] = 0;
	return later;
}

static void allocation_count(struct process_state *process, enum event_layer layer,
			     const struct block *block, uint32_t tid)
{
	struct thread_entry *thread = block->domain ? NULL : state_thread_find(process, tid);

	if (thread)
		recent_put(&thread->recent[layer], block->address);
	state_activity_count(process, layer, block);
}

/* A block of the table was freed, or replaced by its realloc. */
static void free_count(struct process_state *process, const struct event_header *header,
		       enum event_layer layer, const struct block *block)
{
	struct thread_entry *thread =
		block->domain ? NULL : state_thread_find(process, header->tid);
	uint32_t later =
		thread ? recent_take(&thread->recent[layer], block->address) : RECENT_BLOCKS;

	state_activity_free(process, layer, block, header->time_ns, later);
}

/* before: the old block of a realloc, which may have kept its address. */
static int event_put(struct process_state *process, const struct event_alloc *event,
		     const struct pending *before)
{
	struct block block = {.address = event->address,
			      .bytes = event->bytes,
			      .epoch = process->census.epoch,
			      .hooked = !!(event->api & EVENT_API_HOOKED),
			      .rounded = !!(event->api & EVENT_API_ROUNDED),
			      .domain = event->domain,
			      .owner = state_owner(process, event->header.tid),
			      .born_ms = state_activity_ms(process, event->header.time_ns)};
	enum event_layer layer = layer_of(event->api);
	int err;

	if (event->bytes > TRACE_BYTES_MAX)
		return -EBADMSG;
	block.stack = state_stack_index(process, event->stack_id) & BLOCK_STACK_MAX;
	location_set(&block, event->api & EVENT_API_MASK,
		     before->state != PENDING_NONE && before->block.large);
	if (layer == state_window_layer(&process->info) && state_window_skips(process, &block))
		return 0;
	err = state_block_put(process, layer, &block);
	if (err != -EBADMSG)
		allocation_count(process, layer, &block, event->header.tid);
	if (err)
		return err;
	if (layer == state_window_layer(&process->info))
		state_window_sight(process, &block);
	if (!event->domain)
		thread_did(process, &event->header, layer, event->address, 0);
	if (before->state == PENDING_NONE || before->block.address != block.address)
		pool_note(process, &block);
	if (block.stack && !process->stacks[block.stack].known) {
		process->stacks[block.stack].waiting++;
		process->info.counters.stacks_unknown++;
	}
	return 0;
}

int state_alloc(struct process_state *process, const struct event_alloc *event)
{
	static const struct pending none;
	int err;

	/* Besides growth mode they are of windows; late records follow a change of the mode. */
	if ((event->api & EVENT_API_MASK) == EVENT_API_POOL &&
	    process->info.mode != EVENT_MODE_GROWTH) {
		if (process->info.mode == EVENT_MODE_WINDOWS) {
			state_window_pool_taken(process, event);
			state_window_allocs_work(process);
		}
		return 0;
	}
	err = event_put(process, event, &none);
	if (err != -EBADMSG)
		process->info.tables[layer_of(event->api)].allocs++;
	return err;
}

/* The address of the block as the allocator sees it. */
static uint64_t block_start(const struct event_free *event)
{
	return event->address - (event->api & EVENT_API_HOOKED ? EVENT_HOOKS_BEFORE : 0);
}

/* Updates state other than the table when a block is freed. */
static void block_died(struct process_state *process, const struct event_free *event)
{
	enum event_layer layer = layer_of(event->api);

	if (event->domain)
		return;
	thread_did(process, &event->header, layer, block_start(event), 1);
	if (layer == EVENT_LAYER_PYTHON)
		state_census_died(process, block_start(event));
}

/*
 * operator delete has already reported this free and now calls free(); the address cannot have been
 * reused yet.
 */
static int freed_again(struct process_state *process, const struct event_free *event)
{
	uint32_t index = id_map_find(&process->tids, event->header.tid);

	return layer_of(event->api) == EVENT_LAYER_NATIVE && index != ID_MAP_NONE &&
	       process->threads[index].native_freed == event->address;
}

/* Should the table have a block that is freed? Not if its allocation was between two windows. */
static bool is_expected(const struct process_state *process, enum event_layer layer)
{
	const struct trace_process *info = &process->info;

	return layer == EVENT_LAYER_PYTHON ? !info->large_windowed
					   : layer != state_walked_layer(info);
}

int state_free(struct process_state *process, const struct event_free *event)
{
	enum event_layer layer = layer_of(event->api);
	struct trace_table *table = &process->info.tables[layer];
	struct block old;

	if (blocks_take(process->blocks[layer], event->address, event->domain, &old)) {
		free_count(process, &event->header, layer, &old);
		state_block_gone(process, layer, &old);
	} else if (freed_again(process, event)) {
		return 0;
	} else {
		table->frees_unknown += is_expected(process, layer);
	}
	table->frees++;
	block_died(process, event);
	return 0;
}

int state_realloc(struct process_state *process, const struct event_free *event)
{
	enum event_layer layer = layer_of(event->api);
	struct thread_entry *thread = state_thread_find(process, event->header.tid);
	struct pending lost = {0}, *pending = thread ? &thread->pending[layer] : &lost;

	pending->state = PENDING_UNSEEN;
	if (blocks_take(process->blocks[layer], event->address, event->domain, &pending->block)) {
		pending->state = PENDING_TAKEN;
		state_block_gone(process, layer, &pending->block);
	} else {
		pending->block.address = event->address;
		/* Not on Python's heap, so malloc serves it, and keeps it if it shrinks. */
		pending->block.large = layer == EVENT_LAYER_PYTHON && process->census.known &&
				       !address_set_has(&process->census.old, event->address);
	}
	block_died(process, event);
	return 0;
}

/* Ends the thread's pending realloc. */
static struct pending pending_end(struct process_state *process, enum event_layer layer,
				  uint32_t tid)
{
	struct thread_entry *thread = state_thread_find(process, tid);
	struct pending ended = {0};

	if (thread) {
		ended = thread->pending[layer];
		thread->pending[layer].state = PENDING_NONE;
	}
	return ended;
}

int state_realloc_done(struct process_state *process, const struct event_alloc *event)
{
	enum event_layer layer = layer_of(event->api);
	struct pending pending = pending_end(process, layer, event->header.tid);

	process->info.tables[layer].reallocs++;
	if (pending.state == PENDING_UNSEEN)
		process->info.tables[layer].frees_unknown += is_expected(process, layer);
	else if (pending.state == PENDING_TAKEN)
		free_count(process, &event->header, layer, &pending.block);
	return event_put(process, event, &pending);
}

int state_realloc_fail(struct process_state *process, const struct event_free *event)
{
	enum event_layer layer = layer_of(event->api);
	struct pending pending = pending_end(process, layer, event->header.tid);

	if (!event->domain) /* the block was not freed after all */
		thread_did(process, &event->header, layer, event->address, 0);
	if (pending.state != PENDING_TAKEN ||
	    blocks_find(process->blocks[layer], pending.block.address, pending.block.domain))
		return 0;
	/* A pooled block never left the heap, so it counts as seen by the current walk. */
	pending.block.epoch = process->census.epoch;
	return state_block_put(process, layer, &pending.block);
}

/*
 * The object that had the block is gone, when is not known, and another one has it: for all counts
 * a free and an allocation.
 */
static void retrace(struct process_state *process, const struct event_alloc *event,
		    uint64_t address)
{
	struct blocks *blocks = process->blocks[EVENT_LAYER_PYTHON];
	struct block block = *blocks_find(blocks, address, event->domain);

	free_count(process, &event->header, EVENT_LAYER_PYTHON, &block);
	state_activity_gone(process, EVENT_LAYER_PYTHON, &block);
	state_live_change(process, EVENT_LAYER_PYTHON, &block, 1);
	block.stack = state_stack_index(process, event->stack_id) & BLOCK_STACK_MAX;
	block.owner = state_owner(process, event->header.tid);
	block.born_ms = state_activity_ms(process, event->header.time_ns);
	blocks_retrace(blocks, &block);
	state_live_change(process, EVENT_LAYER_PYTHON, &block, 0);
	allocation_count(process, EVENT_LAYER_PYTHON, &block, event->header.tid);
}

/*
 * Between windows its block was not seen: of its size no more is known than the class of its pool.
 */
static void reuse_unknown_count(struct process_state *process, const struct event_alloc *event)
{
	struct block block = {.pooled = 1, .domain = event->domain, .rounded = 1};

	if (process->info.mode != EVENT_MODE_WINDOWS || !process->windows.open)
		return;
	block.stack = state_stack_index(process, event->stack_id) & BLOCK_STACK_MAX;
	block.bytes = fingerprints_class(&process->windows.fingerprints,
					 state_window_pool(process, event->address));
	state_activity_count(process, EVENT_LAYER_PYTHON, &block);
}

/*
 * The block of an object starts at the object, 16 bytes before it (the garbage collector's head),
 * or 32 bytes before it (two more pointers that some types have). Between heap walks the table
 * still holds dead blocks from a time when the pool had another block size. If several blocks are
 * candidates, the one that fits the pool's current block size is used.
 */
int state_reuse(struct process_state *process, const struct event_alloc *event)
{
	static const uint64_t heads[] = {0, 16, 32};
	const struct blocks *blocks = process->blocks[EVENT_LAYER_PYTHON];
	uint64_t address = 0;

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		const struct block *block =
			blocks_find(blocks, event->address - heads[i], event->domain);

		if (!block || block->bytes <= heads[i])
			continue;
		if (!address || is_in_place(process, block))
			address = block->address;
	}
	state_window_reuse(process, event, address);
	if (!address) {
		reuse_unknown_count(process, event);
		return 0;
	}
	process->info.counters.reuses++;
	retrace(process, event, address);
	return 0;
}
