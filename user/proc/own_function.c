/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/own_function.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "proc/process.h"

int own_function_find(uint64_t address, char path[OWN_FUNCTION_PATH], uint64_t *offset)
{
	struct process_maps maps;
	int err = process_maps_read(getpid(), &maps);

	if (err)
		return err;
	err = -ENOENT;
	for (size_t i = 0; i < maps.count && err; i++) {
		const struct process_map *map = &maps.entries[i];

		if (address < map->start || address >= map->end)
			continue;
		snprintf(path, OWN_FUNCTION_PATH, "/proc/self/map_files/%llx-%llx",
			 (unsigned long long)map->start, (unsigned long long)map->end);
		*offset = address - map->start + map->offset;
		err = 0;
	}
	process_maps_free(&maps);
	return err;
}
