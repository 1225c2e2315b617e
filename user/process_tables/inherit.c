/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork. A child starts with a copy of its parent's tables, including stacks and code objects; its
 * own records use ids of their own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "process_tables/process_tables.h"

/* Copies the first count elements of an array into an empty one. */
static int array_copy(struct account *account, void *out, size_t *capacity, const void *from,
		      size_t count, size_t size)
{
	void *copy;
	int err = count ? array_reserve_in(account, out, capacity, 0, count, size) : 0;

	if (err || !count)
		return err;
	memcpy(&copy, out, sizeof(copy));
	memcpy(copy, from, count * size);
	return 0;
}

static int codes_copy(struct process_state *child, const struct process_state *parent)
{
	int err = array_copy(child->account, &child->codes, &child->code_capacity, parent->codes,
			     parent->code_count, sizeof(*parent->codes));

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
	int err = array_copy(child->account, &child->stacks, &child->stack_capacity, parent->stacks,
			     parent->stack_count, sizeof(*parent->stacks));

	if (!err)
		err = array_copy(child->account, &child->stack_frames, &child->stack_frame_capacity,
				 parent->stack_frames, parent->stack_frame_count,
				 sizeof(*parent->stack_frames));
	if (!err)
		err = array_copy(child->account, &child->frames, &child->frame_capacity,
				 parent->frames, parent->frame_count, sizeof(*parent->frames));
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
	int err = array_copy(child->account, &child->symbols, &child->symbol_capacity,
			     parent->symbols, parent->symbol_count, sizeof(*parent->symbols));

	if (!err)
		err = array_copy(child->account, &child->symbol_frames,
				 &child->symbol_frame_capacity, parent->symbol_frames,
				 parent->symbol_frame_count, sizeof(*parent->symbol_frames));
	if (err)
		return err;
	child->symbol_count = parent->symbol_count;
	child->symbol_frame_count = parent->symbol_frame_count;
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
	if (!err)
		err = state_windows_copy(&child->windows, &parent->windows);
	if (!err)
		err = id_map_copy(&child->stack_ids, &parent->stack_ids);
	if (!err)
		err = id_map_copy(&child->frame_ids, &parent->frame_ids);
	if (!err)
		err = id_map_copy(&child->code_ids, &parent->code_ids);
	if (!err)
		err = id_map_copy(&child->symbol_ids, &parent->symbol_ids);
	if (!err)
		err = id_map_copy(&child->pools, &parent->pools);
	if (!err)
		err = block_owners_copy(&child->owners, &parent->owners);
	if (!err)
		err = stacks_copy(child, parent);
	if (!err)
		err = state_live_inherit(child, parent);
	if (!err)
		err = symbols_copy(child, parent);
	if (!err)
		err = codes_copy(child, parent);
	return err ? err : census_copy(child, parent);
}

int state_inherit(struct process_state *child, const struct process_state *parent)
{
	struct process_state copy = {.info = child->info, .unknown = child->unknown};
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
