/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of which files contain a Python runtime: the symbols of the C library are not read again
 * for every process, and processes of one interpreter share its file. Files are identified by
 * device and inode, and are kept open so that these numbers are not reused. A file that has been
 * written to is read again.
 */
#pragma once

#include "object/elf/elf_file.h"
#include "proc/process.h"

#define RUNTIME_FILES_MAX 512u /* entries; then the oldest is removed */

struct runtime_files;

int runtime_files_new(struct runtime_files **out); /* 0, -ENOMEM */
void runtime_files_free(struct runtime_files *files);
/*
 * 1: the file contains a runtime; the caller closes *file; 0: it contains none; -ENOENT: not in the
 * cache.
 */
int runtime_files_find(struct runtime_files *files, const struct process_map *map,
		       struct elf_file **file);
/* Caches a result: file is the file of the map. */
void runtime_files_keep(struct runtime_files *files, const struct process_map *map,
			struct elf_file *file, int has_runtime);
/*
 * Forgets files that were neither kept nor found since the last call: those of containers that are
 * gone, whose files and mounts would last as long as they are open.
 */
void runtime_files_sweep(struct runtime_files *files);
