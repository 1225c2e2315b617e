/* SPDX-License-Identifier: Apache-2.0 */
/* What a session asks about blocks that were seen in windows. */
#include <errno.h>
#include <stdlib.h>

#include "trace/state.h"
#include "util/sorted.h"

/* How many addresses of a window there are at most. */
static size_t window_most(const struct trace_windows *windows, enum trace_sighted which)
{
	return windows->open           ? windows->fresh_count
	       : which == SIGHTED_LAST ? windows->last_count
				       : 0;
}

static size_t window_take(const struct process_state *process, enum trace_sighted which,
			  uint64_t *pools)
{
	const struct trace_windows *windows = &process->windows;
	uint64_t bytes = process->info.pool_bytes;
	size_t count = 0;

	for (size_t i = 0; bytes && i < window_most(windows, which); i++) {
		const struct sighting *found =
			sightings_find(&windows->sightings, windows->fresh[i]);

		if (found && !(which == SIGHTED_FRESH && found->kind) &&
		    !(found->flags & SIGHTING_LARGE))
			pools[count++] = windows->fresh[i] / bytes * bytes;
	}
	return count;
}

static size_t all_take(const struct process_state *process, uint64_t *pools)
{
	const struct id_map *map = &process->windows.pools;
	size_t count = 0;

	for (size_t i = 0; i < map->capacity; i++)
		if (map->slots[i].value != ID_MAP_NONE)
			pools[count++] = map->slots[i].key;
	return count;
}

int trace_sighted_pools(const struct trace *trace, size_t index, enum trace_sighted which,
			uint64_t **out, size_t *count)
{
	const struct process_state *process =
		trace_process_at(trace, index) ? trace->processes[index] : NULL;
	size_t most = !process               ? 0
		      : which == SIGHTED_ALL ? process->windows.pools.count
					     : window_most(&process->windows, which);
	uint64_t *pools = calloc(most + 1, sizeof(*pools));
	size_t taken, kept = 0;

	if (!pools)
		return -ENOMEM;
	taken = !most                  ? 0
		: which == SIGHTED_ALL ? all_take(process, pools)
				       : window_take(process, which, pools);
	qsort(pools, taken, sizeof(*pools), key_compare);
	for (size_t i = 0; i < taken; i++)
		if (!kept || pools[i] != pools[kept - 1])
			pools[kept++] = pools[i];
	*out = pools;
	*count = kept;
	return 0;
}

int trace_sighted_large(const struct trace *trace, size_t index, int fresh, uint64_t **out,
			size_t *count)
{
	const struct process_state *process =
		trace_process_at(trace, index) ? trace->processes[index] : NULL;
	const struct sightings *sightings = process ? &process->windows.sightings : NULL;
	int has_large = process && process->info.large_windowed;
	const struct sighting *sighting;
	uint64_t *addresses;
	size_t cursor = 0, most = 0;

	while (has_large && (sighting = sightings_next(sightings, &cursor)))
		most += (sighting->flags & SIGHTING_LARGE) && !(fresh && sighting->kind);
	addresses = calloc(most + 1, sizeof(*addresses));
	if (!addresses)
		return -ENOMEM;
	*count = cursor = 0;
	while (*count < most && (sighting = sightings_next(sightings, &cursor)))
		if (sighting->flags & SIGHTING_LARGE && !(fresh && sighting->kind))
			addresses[(*count)++] = sighting->address;
	qsort(addresses, *count, sizeof(*addresses), key_compare);
	*out = addresses;
	return 0;
}
