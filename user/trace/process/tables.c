/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/process/process_tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

/* --- peak ------------------------------------------------------------------------------------- */

/*
 * The table at its peak, by stack and domain, without a copy of it at each new peak: every peak has
 * a number, and an activity keeps what it held at the peak of that number only when it first
 * changes after it. One that has not changed since still holds it.
 */

/* The activity is about to change. */
static void live_keep(const struct process_state *process, struct activity *activity)
{
	uint64_t peak = process->activities.peaks[activity->layer].number;

	if (activity->peak == peak)
		return;
	activity->peak = peak;
	activity->peak_units = activity->live_units;
	activity->peak_bytes = activity->live_bytes;
}

static void subtract(uint64_t *from, uint64_t value)
{
	*from -= value < *from ? value : *from;
}

void state_live_change(struct process_state *process, enum event_layer layer,
		       const struct block *block, int gone)
{
	struct activity *activity = state_activity_of(process, layer, block);
	uint64_t units = state_activity_units(process, layer, block);
	uint64_t bytes = state_bytes(process, layer, block);

	if (!activity) {
		process->activities.gap = 1;
		return;
	}
	live_keep(process, activity);
	activity->changed = process->activities.telling;
	if (gone) {
		subtract(&activity->live_units, units);
		subtract(&activity->live_bytes, bytes);
		return;
	}
	/* The table's sum of bytes is bounded, and so is the number of its blocks. */
	activity->live_units += units;
	activity->live_bytes += bytes;
}

void state_live_reset(struct process_state *process, enum event_layer layer)
{
	struct activities *activities = &process->activities;

	activities->reported_first = 0;
	for (size_t i = 0; i < activities->count; i++) {
		if (activities->items[i].layer != layer)
			continue;
		live_keep(process, &activities->items[i]);
		activities->items[i].live_units = activities->items[i].live_bytes = 0;
	}
}

void state_peak_now(struct process_state *process, enum event_layer layer)
{
	struct trace_table *table = &process->info.tables[layer];

	table->peak_bytes = table->live_bytes;
	process->activities.peaks[layer].number++;
	process->activities.peaks[layer].time_ns = process->info.end_ns;
}

void state_peak_of(const struct process_state *process, const struct activity *activity,
		   uint64_t *units, uint64_t *bytes)
{
	const struct trace_table *table = &process->info.tables[activity->layer];
	/* Where heap walks find deaths, the table may have grown beyond the last walk's peak. */
	int is_now = activity->peak != process->activities.peaks[activity->layer].number ||
		     table->live_bytes > table->peak_bytes;

	*units = is_now ? activity->live_units : activity->peak_units;
	*bytes = is_now ? activity->live_bytes : activity->peak_bytes;
}

/* A forked child holds what its parent does. 0, -ENOMEM, -EDQUOT. */
static int state_live_inherit(struct process_state *child, const struct process_state *parent)
{
	const struct activities *from = &parent->activities;
	struct activities *to = &child->activities;
	int err = array_reserve_in(child->account, &to->items, &to->capacity, 0, from->count,
				   sizeof(*to->items));

	if (err || !from->count)
		return err;
	memcpy(to->items, from->items, from->count * sizeof(*to->items));
	to->count = from->count;
	for (size_t i = 0; i < to->count; i++) {
		struct activity *activity = &to->items[i];

		*activity = (struct activity){.stack = activity->stack,
					      .domain = activity->domain,
					      .next = activity->next,
					      .layer = activity->layer,
					      .live_units = activity->live_units,
					      .live_bytes = activity->live_bytes};
	}
	for (size_t layer = 0; layer < EVENT_LAYER_TABLES; layer++)
		to->peaks[layer].number = 1; /* as it began */
	return 0;
}

/* --- threads ---------------------------------------------------------------------------------- */

/* Threads, and the owners of blocks: threads in asyncio tasks. */

struct thread_entry *state_thread_find(struct process_state *process, uint32_t tid)
{
	uint32_t index;

	if (process->thread_count && process->last_tid == tid)
		return &process->threads[process->last_thread];
	index = id_map_find(&process->tids, tid);
	if (index == ID_MAP_NONE) {
		int err =
			ARRAY_RESERVE(process->account, process, threads, thread_count,
				      thread_capacity, 1)
				?: id_map_put(&process->tids, tid, (uint32_t)process->thread_count);
		if (err)
			return NULL;
		index = (uint32_t)process->thread_count++;
		process->threads[index] =
			(struct thread_entry){.tid = tid, .task = process->unreported};
	}
	process->last_tid = tid;
	process->last_thread = index;
	return &process->threads[index];
}

static void used_set(uint64_t *used, uint32_t owner)
{
	used[owner / 64] |= 1ull << owner % 64;
}

/* What windows have shown of blocks that are dead, and of pools. */
static void windows_owners_use(const struct trace_windows *windows, uint64_t *used)
{
	const struct sampled_block *sampled_block;
	size_t cursor = 0;

	while ((sampled_block = sampled_blocks_next(&windows->sampled_blocks, &cursor)))
		used_set(used, sampled_block->owner);
	for (size_t i = 0; i < windows->deaths.count; i++)
		used_set(used, windows->deaths.items[i].owner);
	for (size_t i = 0; i < windows->openers.count; i++)
		used_set(used, windows->openers.items[i].owner);
	for (size_t i = 0; i < windows->taken.count; i++)
		used_set(used, windows->taken.items[i].owner);
	for (size_t i = 0; i < windows->taken_walk.count; i++)
		used_set(used, windows->taken_walk.items[i].owner);
}

/* Drops the owners that no block names. */
static void owners_collect(struct process_state *process)
{
	uint64_t *used = calloc(process->owners.count / 64 + 1, sizeof(*used));
	const struct block *block;

	if (!used)
		return;
	for (size_t layer = 0; layer < EVENT_LAYER_TABLES; layer++) {

		for (size_t cursor = 0; (block = blocks_next(process->blocks[layer], &cursor));)
			used_set(used, block->owner);
		for (size_t i = 0; i < process->thread_count; i++)
			used_set(used, process->threads[i].pending[layer].block.owner);
	}
	windows_owners_use(&process->windows, used);
	for (size_t i = 0; i < process->thread_count; i++)
		process->threads[i].owner = OWNER_NONE;
	block_owners_keep(&process->owners, used);
	free(used);
}

uint32_t state_owner(struct process_state *process, uint32_t tid)
{
	struct thread_entry *thread = state_thread_find(process, tid);

	if (!thread)
		return OWNER_NONE;
	if (thread->owner != OWNER_NONE)
		return thread->owner;
	if (block_owners_are_many(&process->owners))
		owners_collect(process);
	thread->owner = block_owners_find(&process->owners, tid, thread->task);
	if (thread->owner == OWNER_NONE && thread->task)
		thread->owner = block_owners_find(&process->owners, tid, process->unknown);
	return thread->owner;
}

/* --- inherit ---------------------------------------------------------------------------------- */

/*
 * Fork. A child starts with a copy of its parent's tables, including stacks and code objects; its
 * own records use ids of their own.
 */

static int codes_copy(struct process_state *child, const struct process_state *parent)
{
	int err = ARRAY_COPY(child->account, child, parent, codes, code_count, code_capacity);

	if (err)
		return err;
	for (; child->code_count < parent->code_count; child->code_count++) {
		struct code_entry *code = &child->codes[child->code_count];
		uint8_t *lines = code->lines;

		code->marks = NULL;
		code->mark_count = code->marked = 0;
		if (!code->lines_capacity)
			continue;
		err = account_charge(child->account, code->lines_capacity);
		if (err)
			return err;
		code->lines = malloc(code->lines_capacity);
		if (!code->lines) {
			account_uncharge(child->account, code->lines_capacity);
			return -ENOMEM;
		}
		memcpy(code->lines, lines, code->lines_have);
	}
	return 0;
}

static int stacks_copy(struct process_state *child, const struct process_state *parent)
{
	int err = ARRAY_COPY(child->account, child, parent, stacks, stack_count, stack_capacity)
		  ?: ARRAY_COPY(child->account, child, parent, stack_frames, stack_frame_count,
				stack_frame_capacity)
		  ?: ARRAY_COPY(child->account, child, parent, frames, frame_count, frame_capacity);

	if (err)
		return err;
	child->stack_count = parent->stack_count;
	child->stack_frame_count = parent->stack_frame_count;
	child->frame_count = parent->frame_count;
	/* Late records belong to the parent, because ids are per process. */
	for (size_t i = 0; i < child->stack_count; i++)
		child->stacks[i].waiting = 0;
	return 0;
}

static int symbols_copy(struct process_state *child, const struct process_state *parent)
{
	int err = ARRAY_COPY(child->account, child, parent, symbols, symbol_count, symbol_capacity)
			  ?: ARRAY_COPY(child->account, child, parent, symbol_frames,
					symbol_frame_count, symbol_frame_capacity)
			  ?: ARRAY_COPY(child->account, child, parent, binaries, binary_count,
					binary_capacity);

	if (err)
		return err;
	child->symbol_count = parent->symbol_count;
	child->symbol_frame_count = parent->symbol_frame_count;
	child->binary_count = parent->binary_count;
	return 0;
}

/*
 * The results of past heap walks hold for the child, too. A walk in progress reads only the parent.
 */
static int census_copy(struct process_state *child, const struct process_state *parent)
{
	child->census.known = parent->census.known;
	child->census.epoch = parent->census.epoch;
	child->census.old_large = parent->census.old_large;
	if (parent->census.running)
		blocks_confirm_all(child->blocks[EVENT_LAYER_PYTHON], child->census.epoch);
	return address_set_copy(&child->census.old, &parent->census.old);
}

static int tables_copy(struct process_state *child, const struct process_state *parent)
{
	int err = strings_copy(&child->strings, parent->strings, child->account);

	for (size_t i = 0; i < EVENT_LAYER_TABLES && !err; i++)
		err = blocks_copy(&child->blocks[i], parent->blocks[i], child->account);
	for (size_t i = 0; i < EVENT_LAYER_TABLES && !err; i++)
		blocks_inherit_all(child->blocks[i]);
	if (!err)
		err = regions_copy(&child->regions, &parent->regions);
	for (size_t i = 0; i < child->regions.count; i++)
		child->regions.items[i].inherited = 1;
	return err ?: pages_inherit(&child->pages, &parent->pages)
			?: state_windows_copy(&child->windows, &parent->windows)
			?: id_map_copy(&child->stack_ids, &parent->stack_ids)
			?: id_map_copy(&child->frame_ids, &parent->frame_ids)
			?: id_map_copy(&child->code_ids, &parent->code_ids)
			?: id_map_copy(&child->symbol_ids, &parent->symbol_ids)
			?: id_map_copy(&child->pools, &parent->pools)
			?: block_owners_copy(&child->owners, &parent->owners)
			?: stacks_copy(child, parent)
			?: state_live_inherit(child, parent)
			?: symbols_copy(child, parent)
			?: codes_copy(child, parent)
			?: census_copy(child, parent);
}

int state_inherit(struct process_state *child, const struct process_state *parent)
{
	struct process_state copy = {
		.info = child->info, .unknown = child->unknown, .births_ns = parent->births_ns};
	struct trace_process *info = &copy.info;
	int err;

	state_account(&copy, child->account);
	copy.tids.seed = child->tids.seed;
	err = tables_copy(&copy, parent);
	if (err)
		state_tables_free(&copy);
	if (account_is_full(err)) {
		child->info.not_inherited = 1;
		for (size_t i = 0; i < EVENT_LAYER_TABLES; i++) {
			child->info.counters.blocks_dropped += parent->info.tables[i].live_blocks;
			child->info.counters.bytes_dropped += parent->info.tables[i].live_bytes;
		}
		return 0;
	}
	if (err)
		return err;
	for (size_t i = 0; i < EVENT_LAYER_TABLES; i++) {
		info->tables[i].live_bytes = info->tables[i].peak_bytes =
			parent->info.tables[i].live_bytes;
		info->tables[i].live_blocks = parent->info.tables[i].live_blocks;
		copy.inherited_bytes += info->tables[i].live_bytes;
	}
	/* The child reports its own samples only. */
	if (parent->weights) {
		copy.inherited_bytes -= info->tables[EVENT_LAYER_NATIVE].live_bytes;
		err = state_self_sampled(&copy, info->start_ns);
	}
	if (err) {
		state_tables_free(&copy);
		return err;
	}
	info->large_blocks = parent->info.large_blocks;
	info->rounded_blocks = parent->info.rounded_blocks;
	info->from_start = parent->info.from_start;
	info->pooled = parent->info.pooled;
	info->coverage = parent->info.coverage;
	state_tables_free(child);
	*child = copy;
	return 0;
}

/* --- tables ----------------------------------------------------------------------------------- */

int state_tables_new(struct blocks *tables[EVENT_LAYER_TABLES], struct account *account)
{
	int err = blocks_new(&tables[EVENT_LAYER_PYTHON], account);

	return err ?: blocks_new(&tables[EVENT_LAYER_NATIVE], account);
}

void state_account(struct process_state *process, struct account *account)
{
	process->account = process->regions.account = process->pages.numbers.account = account;
	process->census.old.account = process->census.died.account = account;
	state_windows_account(&process->windows, account);
	process->stack_ids.account = process->frame_ids.account = process->code_ids.account =
		account;
	process->owners.index.account = account;
	process->symbol_ids.account = process->tids.account = process->pools.account = account;
}

void state_tables_free(struct process_state *process)
{
	struct account *account = process->account;

	for (size_t i = 0; i < process->code_count; i++) {
		free(process->codes[i].lines);
		free(process->codes[i].marks);
		account_uncharge(account, process->codes[i].lines_capacity);
		account_uncharge(account, process->codes[i].mark_count * sizeof(struct lines_mark));
	}
	for (size_t i = 0; i < EVENT_LAYER_TABLES; i++)
		blocks_free(process->blocks[i]);
	blocks_free(process->weights);
	regions_free(&process->regions);
	pages_free(&process->pages);
	state_windows_free(&process->windows);
	state_window_allocs_free(process);
	ARRAY_RELEASE(account, &process->activities, items, capacity);
	ARRAY_RELEASE(account, &process->activities, freed, freed_capacity);
	id_map_free(&process->stack_ids);
	id_map_free(&process->frame_ids);
	id_map_free(&process->code_ids);
	id_map_free(&process->symbol_ids);
	id_map_free(&process->tids);
	id_map_free(&process->pools);
	ARRAY_RELEASE(account, process, stacks, stack_capacity);
	ARRAY_RELEASE(account, process, stack_frames, stack_frame_capacity);
	ARRAY_RELEASE(account, process, frames, frame_capacity);
	ARRAY_RELEASE(account, process, codes, code_capacity);
	ARRAY_RELEASE(account, process, symbols, symbol_capacity);
	ARRAY_RELEASE(account, process, symbol_frames, symbol_frame_capacity);
	ARRAY_RELEASE(account, process, binaries, binary_capacity);
	ARRAY_RELEASE(account, process, threads, thread_capacity);
	block_owners_free(&process->owners);
	state_census_free(&process->census);
	strings_free(process->strings);
}

void state_final_free(struct process_state *process)
{
	snapshot_free(process->final);
	account_uncharge(process->account, process->final_bytes);
	process->final = NULL;
	process->final_bytes = 0;
}

uint32_t state_layers(uint32_t mode)
{
	uint32_t layers = 0;

	if (mode & EVENT_MODE_NATIVE)
		layers |= 1u << EVENT_LAYER_NATIVE;
	if (mode & EVENT_MODE_MAPPED)
		layers |= 1u << EVENT_LAYER_MMAP;
	if (mode & EVENT_MODE_PAGES)
		layers |= 1u << EVENT_LAYER_PAGES;
	/*
	 * Older captures have no layer flags: they imply Python's layer, and mapped memory only in
	 * growth mode.
	 */
	if (mode & EVENT_MODE_PYTHON || !layers ||
	    (!(mode & EVENT_MODE_NATIVE) && (mode & EVENT_MODE_MASK) == EVENT_MODE_GROWTH))
		layers |= 1u << EVENT_LAYER_PYTHON;
	return layers;
}

enum event_layer trace_first_layer(const struct trace_process *process)
{
	for (int layer = 0; layer < EVENT_LAYERS; layer++)
		if (process->layers & 1u << layer)
			return layer;
	return EVENT_LAYER_PYTHON;
}

/*
 * A pending realloc then ends as the realloc of an unknown block. From here on blocks may be older
 * than the table, even in a process that was traced from its start.
 */
int state_clear(struct process_state *process)
{
	struct trace_process *info = &process->info;
	struct blocks *empty[EVENT_LAYER_TABLES] = {NULL};
	int err = state_tables_new(empty, process->account);

	for (size_t layer = 0; layer < EVENT_LAYER_TABLES; layer++) {
		struct trace_table *table = &info->tables[layer];

		if (err) {
			blocks_free(empty[layer]);
			continue;
		}
		blocks_free(process->blocks[layer]);
		process->blocks[layer] = empty[layer];
		table->live_bytes = table->live_blocks = table->peak_bytes = 0;
		table->frees_unknown = table->replaced = 0;
		for (size_t i = 0; i < process->thread_count; i++)
			if (process->threads[i].pending[layer].state == PENDING_TAKEN)
				process->threads[i].pending[layer].state = PENDING_UNSEEN;
	}
	if (err)
		return err;
	regions_free(&process->regions);
	pages_free(&process->pages);
	state_final_free(process);
	for (size_t i = 0; i < process->stack_count; i++)
		process->stacks[i].waiting = 0;
	info->large_blocks = info->rounded_blocks = 0;
	info->counters.stacks_unknown = 0;
	info->coverage = (struct snapshot_coverage){0};
	state_census_free(&process->census);
	state_windows_clear(process, info->end_ns);
	state_activity_clear(process, info->end_ns);
	info->from_start = 0;
	info->emptied++;
	return state_weights_clear(process);
}
