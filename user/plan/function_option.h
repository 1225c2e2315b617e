/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options that name a function of a target: FILE:SYMBOL and, behind more colons, what is known of
 * it. Pure.
 */
#ifndef TRACER_PLAN_FUNCTION_OPTION_H
#define TRACER_PLAN_FUNCTION_OPTION_H

#include <stddef.h>

#define FUNCTION_ARGUMENTS 6 /* that the ABI passes in registers, integers and pointers */

/*
 * "FILE:SYMBOL[:REST]": *file and *symbol become the caller's, *rest points into text, NULL: there
 * is none. Only FILE's first colon ends it. 0; -EINVAL a part is empty, or the symbol too long for
 * a plan (*file and *symbol untouched); -ENOMEM.
 */
int function_option_split(const char *text, char **file, char **symbol, const char **rest);

/* Which of its integer arguments is what: counted from 1. */
struct function_argument {
	const char *key; /* "size" */
	unsigned *value; /* stays where the text does not say */
};
/*
 * "size=2,addr=1". 0; -EINVAL another key or number, or two of the keys have the same number (of
 * them 0 is none).
 */
int function_option_arguments(const char *text, const struct function_argument *keys, size_t count);

/*
 * Is it this file, as the maps of a process show its path? file is that path or its last component,
 * each may be a pattern as the shell's; that it was deleted says nothing.
 */
int function_option_is_in(const char *file, const char *path);

#endif
