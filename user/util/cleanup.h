/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables that release what they hold where their scope ends, however it is left:
 *
 *	_cleanup_free_ char *text = NULL;
 *	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
 *	_cleanup_(buffer_free) struct buffer out = {0};
 *
 * The variable must have a value when the scope is left. What is handed on is replaced by NULL or
 * -1 first. Variables are released in the reverse order of their declarations, after the value that
 * is returned was computed.
 */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/descriptor.h"

/* function takes the variable's address. */
#define _cleanup_(function) __attribute__((cleanup(function)))

/* FUNCTIONp() for _cleanup_() of pointers: calls function with the pointer unless it is NULL. */
#define DEFINE_CLEANUP(type, function)                                                             \
	static inline void function##p(type *pointer)                                              \
	{                                                                                          \
		if (*pointer)                                                                      \
			function(*pointer);                                                        \
	}

DEFINE_CLEANUP(FILE *, fclose)
DEFINE_CLEANUP(DIR *, closedir)

static inline void freep(void *pointer)
{
	void *data;

	memcpy(&data, pointer, sizeof(data));
	free(data);
}

static inline void closep(const int *fd)
{
	descriptor_close(*fd);
}

#define _cleanup_free_  _cleanup_(freep)
#define _cleanup_close_ _cleanup_(closep)
