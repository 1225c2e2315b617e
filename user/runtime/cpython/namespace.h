/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of a process by their names in a module: sys.modules of the main interpreter, and what is
 * in dictionaries. They are read while the process runs and may be anything: numbers of entries
 * are limited, and types are compared.
 */
#pragma once

#include <stdbool.h>

#include "runtime/cpython/runtime.h"

#define NAMESPACE_INTERPRETERS 64u   /* interpreters that are looked at */
#define NAMESPACE_THREADS      4096u /* the same of its threads */

/* An entry of a dictionary: addresses. */
struct module_item {
	uint64_t key, value;
};

/* The address of a type of the interpreter's file. 0; -ENOTSUP: it exports none (error_set). */
int namespace_type(const struct python_runtime *runtime, const char *name, uint64_t *address);
/* The first thread's state of the main interpreter; the next is at tstate_next. 0: none. */
uint64_t namespace_threads(const struct python_runtime *runtime);
/* Whether the object is a str of that ASCII text; its type is not looked at. */
bool namespace_is_text(const struct python_runtime *runtime, uint64_t object, const char *text);
/* A dict's entry whose key is that ASCII text. 0; -ENOENT: there is none, or it is no dict. */
int namespace_dict_find(const struct python_runtime *runtime, uint64_t dict, const char *text,
			struct module_item *out);
/*
 * The dictionaries of the modules of these names, of the main interpreter; 0: it is not imported.
 * 0; -ENOENT: sys.modules is not found; -ENOTSUP (error_set); -ENOMEM.
 */
int namespace_modules(const struct python_runtime *runtime, const char *const *names, size_t count,
		      uint64_t *dicts);
/*
 * The file of an extension module that is mapped, by a part of its path ("/_asyncio."). 0: the
 * caller closes it; -ENOENT: it is no file of its own, or not mapped; -ESRCH; -EPERM; -ENOMEM.
 */
int namespace_file_open(const struct python_runtime *runtime, const char *name,
			struct elf_file **file, uint64_t *bias);
