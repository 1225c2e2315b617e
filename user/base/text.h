/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names from outside (files, programs, functions) on their way to a terminal: control characters,
 * C1 ones included, and what is no UTF-8 come out as \xNN, since names may hold any and terminals
 * obey them.
 */
#ifndef TRACER_BASE_TEXT_H
#define TRACER_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

void text_print(FILE *out, const char *text);
/*
 * Into out, cut to room bytes with the NUL; four bytes for each of text's are always enough.
 * Returns the length.
 */
size_t text_escape(char *out, size_t room, const char *text);
/* "1,234,567". Returns out. */
char *text_count(char out[32], uint64_t count);

#endif
