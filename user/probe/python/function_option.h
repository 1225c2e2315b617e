/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that name a function of a target: FILE:SYMBOL, followed by details after further colons.
 * Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define FUNCTION_ARGUMENTS 6 /* passed in registers by the ABI: integers and pointers */

/*
 * "FILE:SYMBOL[:REST]": the caller frees *file and *symbol. *rest points into text, or is NULL if
 * there is no REST. Only FILE's first colon ends it. 0; -EINVAL a part is empty, or the symbol is
 * too long for a plan (*file and *symbol are untouched); -ENOMEM.
 */
int function_option_split(const char *text, char **file, char **symbol, const char **rest);

/* The position of an integer argument, counted from 1. */
struct function_argument {
	const char *key; /* "size" */
	unsigned *value; /* unchanged if the text does not set it */
};
/*
 * "size=2,addr=1". 0; -EINVAL unknown key, invalid number, or two keys with the same number other
 * than 0.
 */
int function_option_arguments(const char *text, const struct function_argument *keys, size_t count);

/*
 * Does file match path, which is a path from a process's maps? file is that path or its last
 * component; both may be shell patterns. A " (deleted)" suffix of path is ignored.
 */
bool function_option_is_in(const char *file, const char *path);
