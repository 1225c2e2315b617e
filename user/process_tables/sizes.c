/* SPDX-License-Identifier: Apache-2.0 */
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
#include <errno.h>

#include "base/array.h"
#include "process_tables/process_tables.h"

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
	    array_reserve_in(census->old.account, &census->sizes, &census->size_capacity,
			     census->size_count, 1, sizeof(*census->sizes)))
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
