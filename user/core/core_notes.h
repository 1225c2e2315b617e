/* SPDX-License-Identifier: Apache-2.0 */
/* The notes of a core file: a step of core_open(). */
#ifndef TRACER_CORE_CORE_NOTES_H
#define TRACER_CORE_CORE_NOTES_H

#include <libelf.h>

#include "core/core_file.h"

/*
 * Reads the notes of a segment: the paths of the maps, which are there already, and what is told of
 * the process. Notes that are not understood are passed over. 0; -EINVAL (error_set); -ENOMEM.
 */
int core_notes_read(struct core_file *core, Elf_Data *notes);

#endif
