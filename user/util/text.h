/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Escapes untrusted names (files, programs, functions) for a terminal: control characters, C1 ones
 * included, characters that are invisible or change the direction of text, and invalid UTF-8 are
 * written as \xNN, since names may hold any bytes and terminals obey control characters.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_CHARACTER_MAX 7 /* bytes of the printable form of one character, with its NUL */

void text_print(FILE *out, const char *text);
/*
 * Writes to out, cut to capacity bytes including the NUL; four bytes for each byte of text always
 * suffice. Returns the length.
 */
size_t text_escape(char *out, size_t capacity, const char *text);
/* "1,234,567". Returns out. */
char *text_count(char out[32], uint64_t count);
/* The same in a buffer of its own, which lasts as long as the block around it. */
#define COUNT_TEXT(count) text_count((char[32]){0}, (count))

/* Is it a word for any shell as it is: a name of a file or type without quotes or spaces? */
bool text_is_plain(const char *text);
