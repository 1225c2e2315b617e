/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped memory. It is a layer of its own. Arenas and large blocks lie inside it, so it is never
 * added to the blocks' sizes.
 */
#include <errno.h>

#include "process_tables/process_tables.h"

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
	return err ? err : regions_set(&process->regions, &region);
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
