/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interned strings: each distinct string is kept once and named by a 32-bit id. Id 0 is the empty
 * string. Strings may hold any byte but NUL (UTF-8 by convention; lone surrogates as WTF-8).
 */
#ifndef TRACER_BASE_STRINGS_H
#define TRACER_BASE_STRINGS_H

#include <stddef.h>
#include <stdint.h>

struct account;
struct strings;

int strings_new(struct strings **out); /* 0 or -ENOMEM */
/*
 * Charged to an account, which is borrowed until strings_free(): also -EDQUOT, here and from
 * strings_intern().
 */
int strings_new_in(struct strings **out, struct account *account);
/* The same strings by the same ids. 0, -ENOMEM, -EDQUOT. */
int strings_copy(struct strings **out, const struct strings *from, struct account *account);
void strings_free(struct strings *strings);
/* Gives back what more strings would have taken; there may be more all the same. */
void strings_fit(struct strings *strings);
/*
 * What was charged is given back, and nothing is from here on: the strings are somebody else's now.
 */
void strings_disown(struct strings *strings);
/* Id of the string, added if new; bytes need no NUL. 0 on success, -ENOMEM, -EDQUOT. */
int strings_intern(struct strings *strings, const char *text, size_t bytes, uint32_t *id);
/* 1 and its id when there is such a string, else 0. */
int strings_find(const struct strings *strings, const char *text, uint32_t *id);
const char *strings_get(const struct strings *strings,
			uint32_t id); /* borrowed until strings_free(); "" for an unknown id */
uint32_t strings_count(const struct strings *strings);
size_t strings_memory(const struct strings *strings); /* bytes held */

#endif
