/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is mapped and unmapped. It is a layer of its own: arenas and large blocks lie in it,
 * so it is never added to what the table of blocks holds.
 */
#include <errno.h>

#include "trace/state.h"

#define ADDRESS_END (1ull << 56)

static int range_valid(uint64_t address, uint64_t bytes)
{
	return bytes && bytes <= ADDRESS_END && address <= ADDRESS_END - bytes;
}

/* More regions than are kept: that is counted. */
static int counted(struct process_state *process, int err)
{
	process->info.counters.regions_dropped += err == -ENOSPC;
	return err == -ENOSPC ? 0 : err;
}

static int remap(struct process_state *process, const struct event_map *event, struct region region)
{
	const struct region *old = regions_find(&process->regions, event->old_address);

	/* A file, or from before the trace. */
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
	region.traceback = state_stack_index(process, event->stack_id);
	if (event->header.type == EVENT_REMAP)
		return counted(process, remap(process, event, region));
	if (event->header.type == EVENT_PROTECT)
		return counted(process, regions_protect(&process->regions, &region));
	return counted(process, regions_set(&process->regions, &region));
}
