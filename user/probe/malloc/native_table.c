/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A family is the set of functions that a header declares. Its prefixes are those of its builds:
 * jemalloc's functions are malloc in a distribution's library, je_malloc where a program bundles
 * it, _rjem_malloc in Rust. Sources: POSIX, C23, glibc's and musl's malloc.h, the Itanium C++ ABI's
 * names of operator new and delete, jemalloc(3), gperftools/tcmalloc.h, mimalloc.h.
 */
#include "probe/malloc/native_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

/* clang-format off */
#define MALLOC(size)                 {ABI_OP_MALLOC, {size}}
#define CALLOC(count, size)          {ABI_OP_CALLOC, {count, size}}
#define REALLOC(address, size)       {ABI_OP_REALLOC, {address, size}}
#define ARRAY(address, count, size)  {ABI_OP_REALLOCARRAY, {address, count, size}}
#define MEMALIGN(result, size)       {ABI_OP_POSIX_MEMALIGN, {result, size}}
#define RESIZE(address, size)        {ABI_OP_XALLOCX, {address, size}}
#define FREE                         {ABI_OP_FREE, {1}}
#define UNKNOWN_SIZE                 {0, {0}}
/* clang-format on */

struct table_function {
	const char *name;
	struct native_call call;
	uint8_t throws;
};

static const struct table_function c[] = {
	{"malloc", MALLOC(1), 0},
	{"calloc", CALLOC(1, 2), 0},
	{"realloc", REALLOC(1, 2), 0},
	{"reallocarray", ARRAY(1, 2, 3), 0},
	{"free", FREE, 0},
	{"posix_memalign", MEMALIGN(1, 3), 0},
	{"aligned_alloc", MALLOC(2), 0},
	{"memalign", MALLOC(2), 0},
	{"valloc", MALLOC(1), 0},
	{"pvalloc", MALLOC(1), 0},
	{"cfree", FREE, 0},
	{"free_sized", FREE, 0},
	{"free_aligned_sized", FREE, 0},
};

/* The size is C++'s size_t, "m" in mangled names. */
static const struct table_function cxx_new[] = {
	{"", MALLOC(1), 1},
	{"RKSt9nothrow_t", MALLOC(1), 0},
	{"St11align_val_t", MALLOC(1), 1},
	{"St11align_val_tRKSt9nothrow_t", MALLOC(1), 0},
};

static const struct table_function cxx_delete[] = {
	{"", FREE, 0},
	{"m", FREE, 0},
	{"RKSt9nothrow_t", FREE, 0},
	{"St11align_val_t", FREE, 0},
	{"mSt11align_val_t", FREE, 0},
	{"St11align_val_tRKSt9nothrow_t", FREE, 0},
};

static const struct table_function jemalloc[] = {
	{"mallocx", MALLOC(1), 0}, {"rallocx", REALLOC(1, 2), 0}, {"xallocx", RESIZE(1, 2), 0},
	{"dallocx", FREE, 0},      {"sdallocx", FREE, 0},
};

static const struct table_function tcmalloc[] = {
	{"new", MALLOC(1), 1},
	{"newarray", MALLOC(1), 1},
	{"new_nothrow", MALLOC(1), 0},
	{"newarray_nothrow", MALLOC(1), 0},
	{"new_aligned", MALLOC(1), 1},
	{"newarray_aligned", MALLOC(1), 1},
	{"new_aligned_nothrow", MALLOC(1), 0},
	{"newarray_aligned_nothrow", MALLOC(1), 0},
	{"malloc_skip_new_handler", MALLOC(1), 0},
	{"delete", FREE, 0},
	{"deletearray", FREE, 0},
	{"delete_sized", FREE, 0},
	{"deletearray_sized", FREE, 0},
	{"delete_nothrow", FREE, 0},
	{"deletearray_nothrow", FREE, 0},
	{"delete_aligned", FREE, 0},
	{"deletearray_aligned", FREE, 0},
	{"delete_sized_aligned", FREE, 0},
	{"deletearray_sized_aligned", FREE, 0},
	{"delete_aligned_nothrow", FREE, 0},
	{"deletearray_aligned_nothrow", FREE, 0},
};

static const struct table_function mimalloc[] = {
	{"zalloc", MALLOC(1), 0},
	{"malloc_small", MALLOC(1), 0},
	{"zalloc_small", MALLOC(1), 0},
	{"mallocn", CALLOC(1, 2), 0},
	{"reallocn", ARRAY(1, 2, 3), 0},
	{"reallocf", REALLOC(1, 2), 0},
	{"rezalloc", REALLOC(1, 2), 0},
	{"recalloc", ARRAY(1, 2, 3), 0},
	{"malloc_aligned", MALLOC(1), 0},
	{"malloc_aligned_at", MALLOC(1), 0},
	{"zalloc_aligned", MALLOC(1), 0},
	{"zalloc_aligned_at", MALLOC(1), 0},
	{"calloc_aligned", CALLOC(1, 2), 0},
	{"calloc_aligned_at", CALLOC(1, 2), 0},
	{"realloc_aligned", REALLOC(1, 2), 0},
	{"realloc_aligned_at", REALLOC(1, 2), 0},
	{"rezalloc_aligned", REALLOC(1, 2), 0},
	{"rezalloc_aligned_at", REALLOC(1, 2), 0},
	{"recalloc_aligned", ARRAY(1, 2, 3), 0},
	{"recalloc_aligned_at", ARRAY(1, 2, 3), 0},
	{"aligned_recalloc", ARRAY(1, 2, 3), 0},
	{"aligned_offset_recalloc", ARRAY(1, 2, 3), 0},
	{"new", MALLOC(1), 1},
	{"new_n", CALLOC(1, 2), 1},
	{"new_nothrow", MALLOC(1), 0},
	{"new_aligned", MALLOC(1), 1},
	{"new_aligned_nothrow", MALLOC(1), 0},
	{"new_realloc", REALLOC(1, 2), 1},
	{"new_reallocn", ARRAY(1, 2, 3), 1},
	{"free_size", FREE, 0},
	{"free_size_aligned", FREE, 0},
	{"free_aligned", FREE, 0},
	{"strdup", UNKNOWN_SIZE, 0},
	{"strndup", UNKNOWN_SIZE, 0},
	{"realpath", UNKNOWN_SIZE, 0},
	{"mbsdup", UNKNOWN_SIZE, 0},
	{"wcsdup", UNKNOWN_SIZE, 0},
	{"dupenv_s", UNKNOWN_SIZE, 0},
	{"wdupenv_s", UNKNOWN_SIZE, 0},
};

/* The first argument is the heap. */
static const struct table_function mimalloc_heap[] = {
	{"malloc", MALLOC(2), 0},
	{"zalloc", MALLOC(2), 0},
	{"calloc", CALLOC(2, 3), 0},
	{"mallocn", CALLOC(2, 3), 0},
	{"malloc_small", MALLOC(2), 0},
	{"zalloc_small", MALLOC(2), 0},
	{"realloc", REALLOC(2, 3), 0},
	{"reallocf", REALLOC(2, 3), 0},
	{"rezalloc", REALLOC(2, 3), 0},
	{"reallocn", ARRAY(2, 3, 4), 0},
	{"recalloc", ARRAY(2, 3, 4), 0},
	{"malloc_aligned", MALLOC(2), 0},
	{"malloc_aligned_at", MALLOC(2), 0},
	{"zalloc_aligned", MALLOC(2), 0},
	{"zalloc_aligned_at", MALLOC(2), 0},
	{"calloc_aligned", CALLOC(2, 3), 0},
	{"calloc_aligned_at", CALLOC(2, 3), 0},
	{"realloc_aligned", REALLOC(2, 3), 0},
	{"realloc_aligned_at", REALLOC(2, 3), 0},
	{"rezalloc_aligned", REALLOC(2, 3), 0},
	{"rezalloc_aligned_at", REALLOC(2, 3), 0},
	{"recalloc_aligned", ARRAY(2, 3, 4), 0},
	{"recalloc_aligned_at", ARRAY(2, 3, 4), 0},
	{"alloc_new", MALLOC(2), 1},
	{"alloc_new_n", CALLOC(2, 3), 1},
	{"strdup", UNKNOWN_SIZE, 0},
	{"strndup", UNKNOWN_SIZE, 0},
	{"realpath", UNKNOWN_SIZE, 0},
};

/* What mimalloc exports in addition to other allocators' names. */
static const struct table_function mimalloc_more[] = {
	{"_aligned_malloc", MALLOC(1), 0},
	{"reallocf", REALLOC(1, 2), 0},
	{"vfree", FREE, 0},
};

static const struct family {
	const char *prefixes[7]; /* NULL ends them */
	const struct table_function *functions;
	size_t count;
} families[] = {
	{{""}, c, ARRAY_SIZE(c)},
	{{"_Znwm", "_Znam"}, cxx_new, ARRAY_SIZE(cxx_new)},
	{{"_ZdlPv", "_ZdaPv"}, cxx_delete, ARRAY_SIZE(cxx_delete)},
	{{"", "je_", "_rjem_"}, jemalloc, ARRAY_SIZE(jemalloc)},
	{{"mi_"}, mimalloc, ARRAY_SIZE(mimalloc)},
	{{"mi_heap_"}, mimalloc_heap, ARRAY_SIZE(mimalloc_heap)},
	{{"tc_"}, tcmalloc, ARRAY_SIZE(tcmalloc)},
	{{"__libc_", "je_", "_rjem_", "tc_", "mi_"}, c, ARRAY_SIZE(c)},
	{{""}, mimalloc_more, ARRAY_SIZE(mimalloc_more)},
};

static size_t family_size(const struct family *family)
{
	size_t prefixes = 0;

	while (prefixes < ARRAY_SIZE(family->prefixes) && family->prefixes[prefixes])
		prefixes++;
	return prefixes * family->count;
}

int native_table_new(struct native_function **out, size_t *count)
{
	struct native_function *table;
	size_t total = 0, n = 0;

	for (size_t f = 0; f < ARRAY_SIZE(families); f++)
		total += family_size(&families[f]);
	table = calloc(total, sizeof(*table));
	if (!table)
		return -ENOMEM;
	for (size_t f = 0; f < ARRAY_SIZE(families); f++)
		for (size_t i = 0; i < family_size(&families[f]); i++, n++) {
			const struct table_function *function =
				&families[f].functions[i % families[f].count];

			snprintf(table[n].symbol, sizeof(table[n].symbol), "%s%s",
				 families[f].prefixes[i / families[f].count], function->name);
			table[n].call = function->call;
			table[n].throws = function->throws;
		}
	*out = table;
	*count = total;
	return 0;
}

const struct native_call *native_kind(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(c); i++)
		if (!strcmp(c[i].name, name))
			return &c[i].call;
	return NULL;
}

void native_kinds_list(char *text, size_t size)
{
	size_t length = 0;

	text[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(c) && length < size; i++)
		length += (size_t)snprintf(text + length, size - length, "%s%s", i ? ", " : "",
					   c[i].name);
}
