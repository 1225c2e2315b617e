/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises CPython and its version in a file: by symbols, sections, names, constants. */
#ifndef TRACER_LAYOUTS_SIGNS_H
#define TRACER_LAYOUTS_SIGNS_H

#include <stdint.h>

#include "elf/elf_file.h"

/*
 * Finds _PyRuntime in the file. A file without exported symbols (an application that links CPython)
 * still has it in its own section from 3.11 on. 0; -ENOENT: none.
 */
int signs_runtime(struct elf_file *file, uint64_t *vaddr);
/*
 * PY_VERSION_HEX from the start of _PyRuntime at vaddr, 3.13 and later, and whether it is a
 * free-threaded build. 0; -ENOENT.
 */
int signs_own_version(struct elf_file *file, uint64_t vaddr, uint32_t *hex, int *free_threaded);
/*
 * Whether it contains a CPython from before _PyRuntime (2.7 to 3.6), or PyPy, which exports the
 * same function.
 */
int signs_is_old(struct elf_file *file);
/*
 * Whether it contains a CPython but exports nothing of it, by its constants: names of environment
 * variables and modules that only the interpreter has together.
 */
int signs_is_hidden(struct elf_file *file);
/*
 * The version from the file's name, or from the name of its module folder, a constant. *build: 't',
 * 'd' or 0, from the name. 0; -ENOENT: neither has it.
 */
int signs_version(struct elf_file *file, unsigned int *major, unsigned int *minor, char *build);

#endif
