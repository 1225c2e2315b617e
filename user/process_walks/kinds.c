/* SPDX-License-Identifier: Apache-2.0 */
/* What looks find in the blocks of pymalloc's pools that were seen in windows. */
#include <errno.h>

#include "process_tables/process_tables.h"
#include "process_walks/process_walks.h"

/* A walk has shown this at the address of a sighting. */
static void sighting_judge(struct process_state *process, struct sighting *sighting,
			   uint32_t block_bytes, const struct event_census_kind *kind)
{
	const struct block *block = state_window_block_at(process, sighting->address);
	uint64_t bytes = block ? block_allocator_bytes(block) : 0;

	if (!sighting->kind &&
	    (kind->kind == EVENT_KIND_DEAD ||
	     (process->windows.open &&
	      state_window_in_progress(process, block ? block->address : sighting->address))))
		return;
	if (!block || kind->kind == EVENT_KIND_FREE || bytes > block_bytes ||
	    bytes + EVENT_BLOCK_STEP <= block_bytes) {
		state_window_drop(process, sighting->address);
	} else if (!sighting->kind) {
		sighting->kind = kind->kind;
		sighting->print = kind->print;
		state_window_shown(process, sighting);
	} else if (sighting->kind != kind->kind || sighting->print != kind->print) {
		process->windows.changed++;
		state_window_drop(process, sighting->address);
	} else {
		state_window_seen(process, sighting);
	}
}

/* An object from a free list: its block is the one that contains it. */
static void object_place(struct process_state *process, const struct sighting *object,
			 uint64_t address, uint32_t block_bytes,
			 const struct event_census_kind *kind)
{
	const struct block block = {.address = address,
				    .bytes = block_bytes,
				    .epoch = process->census.epoch,
				    .pooled = 1,
				    .rounded = 1,
				    .stack = object->stack & BLOCK_STACK_MAX};
	struct sighting sighting = {.address = address,
				    .kind = kind->kind,
				    .print = kind->print,
				    .window = object->window,
				    .made_ns = object->made_ns};

	/* Its reference count is about to be set. */
	if (kind->kind == EVENT_KIND_DEAD)
		return;
	state_sighting_remove(process, object->address);
	if (kind->kind < EVENT_KIND_FIRST || state_window_block_at(process, address))
		return;
	state_windows_another(process, address);
	state_window_shown(process, &sighting);
	if (state_block_put(process, EVENT_LAYER_PYTHON, &block) ||
	    state_sighting_add(process, &sighting)) {
		process->windows.dropped++;
		state_window_drop(process, address);
	}
}

/* What was seen at one of the addresses of a pool where a block or an object may begin. */
static void address_judge(struct process_state *process, const struct event_census_kinds *event,
			  uint64_t offset)
{
	struct sighting *found =
		sightings_find(&process->windows.sightings, event->address + offset);
	uint64_t number = offset / event->block_bytes, within = offset % event->block_bytes;
	uint64_t address = event->address + offset - within;
	struct sighting object;

	if (!found)
		return;
	if (found->flags & SIGHTING_OBJECT) {
		object = *found;
		if (number < event->count && within <= 2 * EVENT_BLOCK_STEP)
			object_place(process, &object, address, event->block_bytes,
				     &event->kinds[number]);
		else
			state_sighting_remove(process, object.address);
	} else if (number >= event->count || within) {
		state_window_drop(process, event->address + offset);
	} else {
		sighting_judge(process, found, event->block_bytes, &event->kinds[number]);
	}
}

int state_census_kinds(struct process_state *process, const struct event_census_kinds *event)
{
	uint64_t pool = state_window_pool(process, event->address), end;

	if (event->count > EVENT_POOL_BLOCKS || event->block_bytes > EVENT_SMALL_BYTES ||
	    event->block_bytes % EVENT_BLOCK_STEP || event->address % EVENT_BLOCK_STEP ||
	    (event->count && !event->block_bytes) || event->address > UINT64_MAX / 2 ||
	    event->header.size != sizeof(*event) + event->count * sizeof(event->kinds[0]))
		return -EBADMSG;
	if (process->info.mode != EVENT_MODE_WINDOWS || !pool || !event->block_bytes)
		return 0;
	if (process->census.running && process->census.id == event->id)
		state_windows_count(process, event);
	else
		state_windows_look(process, event);
	if (id_map_find(&process->windows.pools, pool) == ID_MAP_NONE)
		return 0;
	end = pool + process->info.pool_bytes;
	for (uint64_t at = event->address; at < end; at += EVENT_BLOCK_STEP)
		address_judge(process, event, at - event->address);
	return 0;
}
