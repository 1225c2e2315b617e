/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, and the owners of blocks: threads in asyncio tasks. */
#include <stdlib.h>

#include "base/array.h"
#include "process_tables/process_tables.h"

struct thread_entry *state_thread_find(struct process_state *process, uint32_t tid)
{
	uint32_t index;

	if (process->thread_count && process->last_tid == tid)
		return &process->threads[process->last_thread];
	index = id_map_find(&process->tids, tid);
	if (index == ID_MAP_NONE) {
		int err = array_reserve_in(process->account, &process->threads,
					   &process->thread_capacity, process->thread_count, 1,
					   sizeof(*process->threads));
		if (!err)
			err = id_map_put(&process->tids, tid, (uint32_t)process->thread_count);
		if (err)
			return NULL;
		index = (uint32_t)process->thread_count++;
		process->threads[index] =
			(struct thread_entry){.tid = tid, .task = process->untold};
	}
	process->last_tid = tid;
	process->last_thread = index;
	return &process->threads[index];
}

static void used_set(uint64_t *used, uint32_t owner)
{
	used[owner / 64] |= 1ull << owner % 64;
}

/* Drops the owners that no block names. */
static void owners_collect(struct process_state *process)
{
	uint64_t *used = calloc(process->owners.count / 64 + 1, sizeof(*used));
	const struct block *block;

	if (!used)
		return;
	for (size_t layer = 0; layer < EVENT_LAYER_TABLES; layer++) {
		size_t cursor = 0;

		while ((block = blocks_next(process->blocks[layer], &cursor)))
			used_set(used, block->owner);
		for (size_t i = 0; i < process->thread_count; i++)
			used_set(used, process->threads[i].pending[layer].block.owner);
	}
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
