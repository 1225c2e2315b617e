/* SPDX-License-Identifier: Apache-2.0 */
/* By what a file is known to hold CPython, and which: symbols, sections, names, constants. */
#ifndef TRACER_PYTHON_SIGNS_H
#define TRACER_PYTHON_SIGNS_H

#include <stdint.h>

#include "elf/elf_file.h"

/*
 * Where the file has _PyRuntime. One that exports no symbols (an application that has CPython
 * linked into it) still has it in a section of its own, from 3.11 on. 0; -ENOENT there is none.
 */
int signs_runtime(struct elf_file *file, uint64_t *vaddr);
/* PY_VERSION_HEX as _PyRuntime at vaddr begins with it, from 3.13 on. 0; -ENOENT it does not. */
int signs_own_version(struct elf_file *file, uint64_t vaddr, uint32_t *hex);
/*
 * Does it hold a CPython from before there was a _PyRuntime (2.7 to 3.6), or PyPy, which is called
 * in the same way?
 */
int signs_is_old(struct elf_file *file);
/*
 * Does it hold a CPython of which it exports nothing? Its constants say so: names of environment
 * variables and modules that only the interpreter itself has all of.
 */
int signs_is_hidden(struct elf_file *file);
/*
 * The version as the file's name has it, or the name of the folder of its modules, a constant in
 * it. *build: 't', 'd' or 0, from the name. 0; -ENOENT neither says it.
 */
int signs_version(struct elf_file *file, unsigned int *major, unsigned int *minor, char *build);

#endif
