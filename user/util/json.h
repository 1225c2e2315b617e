/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON in the format of Python's json.dumps(): ASCII only, ", " and ": " as separators. Lone
 * surrogates (WTF-8) are \udXXX, any byte that is not UTF-8 is \udc80 + (byte - 0x80), Python's
 * surrogateescape. JSON libraries refuse both. Errors are left in ferror(out).
 *
 *	struct json json = {.out = out};
 *
 *	json_open(&json, NULL, '{');
 *	json_text(&json, "name", name);
 *	json_open(&json, "sizes", '[');
 *	json_unsigned(&json, NULL, size);
 *	json_close(&json, ']');
 *	json_end(&json);
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out;
	int more; /* a value has been written in the array or object that is open */
};

/* In what follows, key is NULL in an array. It is not escaped. */
void json_open(struct json *json, const char *key, char bracket);
void json_close(struct json *json, char bracket);
void json_end(struct json *json); /* closes the outermost object, and ends the line */

void json_text(struct json *json, const char *key, const char *text); /* NULL: null */
void json_unsigned(struct json *json, const char *key, uint64_t value);
void json_signed(struct json *json, const char *key, int64_t value);
void json_bool(struct json *json, const char *key, int value);
void json_fixed(struct json *json, const char *key, double value, int decimals);
void json_float(struct json *json, const char *key, double value); /* six digits */
void json_none(struct json *json, const char *key);
/* What is due before a value. The caller writes the value, or whole members if key is NULL. */
FILE *json_value(struct json *json, const char *key);

struct json_number {
	const char *key; /* NULL: the last */
	uint64_t value;
};
/* json_numbers(json, {"size", size}, {"count", count}); */
#define json_numbers(json, ...)                                                                    \
	json_members(json, (const struct json_number[]){__VA_ARGS__, {NULL, 0}})
void json_members(struct json *json, const struct json_number *numbers);

/* Of text that is written without the rest: "text", with quotes; "key": "value" */
void json_quote(FILE *out, const char *text);
void json_member(FILE *out, const char *key, const char *value);
