/* SPDX-License-Identifier: Apache-2.0 */
/* The notes of a core file: a step of core_open(). */
#pragma once

#include <libelf.h>

#include "proc/core/core_file.h"

/*
 * Reads the notes of a segment: the paths of the maps, which are there already, further maps of
 * files, and what is told of the process. Notes that are not understood are passed over. 0; -EINVAL
 * (error_set); -ENOMEM.
 */
int core_notes_read(struct core_file *core, Elf_Data *notes);
/* Adds a map, whose path is copied. 0; -EINVAL: there are too many (error_set); -ENOMEM. */
int core_map_add(struct core_file *core, const struct process_map *map,
		 const struct core_content *content);

/* core_map_find() among the first maps, which are in order; count: none. */
size_t core_map_among(const struct core_file *core, size_t count, uint64_t address);
