/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files hold a Python runtime, as far as they have been looked into: the thousandth process
 * that maps the C library need not have its symbols read again, and processes of one interpreter
 * share what is known of its file. Files are told apart by device and inode, and are kept open, so
 * that no other file can get these numbers; one that has been written to is looked into again.
 */
#ifndef TRACER_PYTHON_RUNTIME_FILES_H
#define TRACER_PYTHON_RUNTIME_FILES_H

#include "elf/elf_file.h"
#include "process/process.h"

#define RUNTIME_FILES_MAX 512u /* kept; then the oldest is forgotten */

struct runtime_files;

int runtime_files_new(struct runtime_files **out); /* 0, -ENOMEM */
void runtime_files_free(struct runtime_files *files);
/*
 * 1: it holds a runtime, and *file, which the caller closes, is it; 0: it holds none; -ENOENT: it
 * is not known.
 */
int runtime_files_find(struct runtime_files *files, const struct process_map *map,
		       struct elf_file **file);
/* Keeps what was found: file is the one that the map shows. */
void runtime_files_keep(struct runtime_files *files, const struct process_map *map,
			struct elf_file *file, int has_runtime);

#endif
