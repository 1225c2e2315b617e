/* SPDX-License-Identifier: Apache-2.0 */
#include "process_tables/process_tables.h"

#include <stdlib.h>

#include "base/array.h"

int state_tables_new(struct blocks *tables[EVENT_LAYER_TABLES], struct account *account)
{
	int err = blocks_new(&tables[EVENT_LAYER_PYTHON], account);

	return err ? err : blocks_new(&tables[EVENT_LAYER_NATIVE], account);
}

void state_account(struct process_state *process, struct account *account)
{
	process->account = process->regions.account = account;
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
	state_windows_free(&process->windows);
	array_release(account, &process->activities.items, &process->activities.capacity,
		      sizeof(*process->activities.items));
	array_release(account, &process->activities.freed, &process->activities.freed_capacity,
		      sizeof(*process->activities.freed));
	id_map_free(&process->stack_ids);
	id_map_free(&process->frame_ids);
	id_map_free(&process->code_ids);
	id_map_free(&process->symbol_ids);
	id_map_free(&process->tids);
	id_map_free(&process->pools);
	array_release(account, &process->stacks, &process->stack_capacity,
		      sizeof(*process->stacks));
	array_release(account, &process->stack_frames, &process->stack_frame_capacity,
		      sizeof(*process->stack_frames));
	array_release(account, &process->frames, &process->frame_capacity,
		      sizeof(*process->frames));
	array_release(account, &process->codes, &process->code_capacity, sizeof(*process->codes));
	array_release(account, &process->symbols, &process->symbol_capacity,
		      sizeof(*process->symbols));
	array_release(account, &process->symbol_frames, &process->symbol_frame_capacity,
		      sizeof(*process->symbol_frames));
	array_release(account, &process->threads, &process->thread_capacity,
		      sizeof(*process->threads));
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
