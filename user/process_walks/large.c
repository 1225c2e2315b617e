/* SPDX-License-Identifier: Apache-2.0 */
/* What looks find at the addresses of malloc's blocks that were seen in windows. */
#include <errno.h>

#include "process_tables/process_tables.h"
#include "process_walks/process_walks.h"

static void large_judge(struct process_state *process, const struct event_large_block *look)
{
	struct trace_windows *windows = &process->windows;
	struct sighting *sighting = sightings_find(&windows->sightings, look->address);
	const struct event_census_kind *kind = &look->kind;
	const struct block *block;
	uint64_t bytes;

	if (!sighting || !(sighting->flags & SIGHTING_LARGE))
		return;
	block = state_window_block(process, sighting);
	bytes = block ? block_allocator_bytes(block) : 0;
	/* Its thread may be about to take or to fill it. */
	if (!sighting->kind && windows->open &&
	    state_window_in_progress(process, block ? block->address : look->address))
		return;
	if (!block || kind->kind == EVENT_KIND_FREE || bytes > look->bytes) {
		state_window_drop(process, look->address);
	} else if (!sighting->kind) {
		sighting->kind = kind->kind;
		sighting->print = kind->print;
		state_window_shown(process, sighting);
	} else if (sighting->kind != kind->kind || sighting->print != kind->print) {
		windows->changed++;
		state_window_drop(process, look->address);
	} else {
		state_window_seen(process, sighting);
	}
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
