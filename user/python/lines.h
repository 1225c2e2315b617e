/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Line tables of code objects, pure: bytes in, line out. Formats and rules as CPython's own
 * PyCode_Addr2Line: Objects/lnotab_notes.txt (3.8-3.10), Objects/locations.md (3.11+). Input is hostile.
 */
#ifndef TRACER_PYTHON_LINES_H
#define TRACER_PYTHON_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "python/offsets.h"

/*
 * Line of the instruction at lasti bytes (-1: the first line, as CPython has it). Returns the line, 0 when the
 * table says there is none or is malformed before lasti.
 */
int lines_find(enum lines_format format, const uint8_t *table, size_t bytes, int first_line, int lasti);

#endif
