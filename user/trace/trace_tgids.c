/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps tgids to processes, and remembers tgids of dropped processes that may still send records.
 * Only the most recent of the latter are kept, in two generations, so that memory stays bounded in
 * long sessions.
 */
#include <errno.h>

#include "trace/state.h"

#define GENERATION 1024u /* tgids */

void state_tgids_begin(struct trace *trace)
{
	struct id_map *const maps[] = {&trace->tgids, &trace->dropped_tgids[0],
				       &trace->dropped_tgids[1]};

	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		maps[i]->seed = trace->seed;
		maps[i]->account = &trace->account;
	}
}

void state_tgids_free(struct trace *trace)
{
	id_map_free(&trace->tgids);
	id_map_free(&trace->dropped_tgids[0]);
	id_map_free(&trace->dropped_tgids[1]);
}

int trace_process_find(const struct trace *trace, uint32_t tgid, size_t *index)
{
	uint32_t found = id_map_find(&trace->tgids, tgid);

	if (found >= trace->process_count || !trace->processes[found] ||
	    trace->processes[found]->info.tgid != tgid)
		return -ENOENT;
	*index = found;
	return 0;
}

void state_tgid_drop(struct trace *trace, uint32_t tgid)
{
	struct id_map *dropped = trace->dropped_tgids;

	id_map_remove(&trace->tgids, tgid);
	if (dropped[0].count >= GENERATION) {
		id_map_free(&dropped[1]);
		dropped[1] = dropped[0];
		dropped[0] =
			(struct id_map){.seed = dropped[1].seed, .account = dropped[1].account};
	}
	/* Without memory, its later records count as malformed. */
	id_map_put(&dropped[0], tgid, 0);
}

int state_tgid_is_dropped(struct trace *trace, uint32_t tgid)
{
	if (id_map_find(&trace->dropped_tgids[0], tgid) != ID_MAP_NONE)
		return 1;
	if (id_map_find(&trace->dropped_tgids[1], tgid) == ID_MAP_NONE)
		return 0;
	state_tgid_drop(trace, tgid); /* still active: move it to the current generation */
	return 1;
}
