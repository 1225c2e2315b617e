/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interned strings: each distinct string is stored once and identified by a 32-bit id. Id 0 is the
 * empty string. Strings may hold any byte but NUL (UTF-8 by convention; lone surrogates as WTF-8).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct account;
struct strings;

int strings_new(struct strings **out); /* 0 or -ENOMEM */
/*
 * The same, charged to an account, which is borrowed until strings_free(): this and
 * strings_intern() also return -EDQUOT.
 */
int strings_new_in(struct strings **out, struct account *account);
/* Copies the strings; their ids stay the same. 0, -ENOMEM, -EDQUOT. */
int strings_copy(struct strings **out, const struct strings *from, struct account *account);
void strings_free(struct strings *strings);
/* Frees unused capacity. More strings may still be added. */
void strings_fit(struct strings *strings);
/* Gives back what was charged and charges nothing from now on: the strings have a new owner. */
void strings_disown(struct strings *strings);
/* Id of the string, added if new; bytes need no NUL. 0 on success, -ENOMEM, -EDQUOT. */
int strings_intern(struct strings *strings, const char *text, size_t bytes, uint32_t *id);
/* 1 and *id when the string exists, else 0. */
int strings_find(const struct strings *strings, const char *text, uint32_t *id);
/* Borrowed until strings_free(); "" for an unknown id. */
const char *strings_get(const struct strings *strings, uint32_t id);
uint32_t strings_count(const struct strings *strings);
size_t strings_memory(const struct strings *strings); /* bytes held */
