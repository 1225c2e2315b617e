/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/process/plan_text.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "object/elf/elf_file.h"
#include "util/array.h"
#include "util/regular.h"

/* 0: it is not mapped. */
static uint64_t site_address(const struct process_maps *maps, const struct stat *file,
			     uint64_t offset)
{
	for (size_t i = 0; i < maps->count; i++) {
		const struct process_map *map = &maps->entries[i];

		if (process_map_is_code(map, file) && offset >= map->offset &&
		    offset - map->offset < map->end - map->start)
			return map->start + (offset - map->offset);
	}
	return 0;
}

int plan_text_add(struct plan_text *text, const struct process_maps *maps, const struct plan *plan,
		  const struct elf_file *file, plan_text_filter filter, const void *context)
{
	struct stat st;
	int err = regular_stat(elf_file_fd(file), &st);

	for (size_t i = 0; i < plan->count && !err; i++) {
		uint64_t address = filter(context, &plan->sites[i])
					   ? site_address(maps, &st, plan->sites[i].offset)
					   : 0;

		if (!address)
			continue;
		err = ARRAY_GROW(text->places, text->capacity, text->count);
		if (!err)
			text->places[text->count++] = (struct plan_place){
				.address = address,
				.kind = plan->sites[i].op * 2u + !!plan->sites[i].with_return};
	}
	return err;
}

void plan_text_free(struct plan_text *text)
{
	free(text->places);
	*text = (struct plan_text){0};
}
