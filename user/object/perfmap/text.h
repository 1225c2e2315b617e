/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a perf map, one line "START SIZE NAME" per entry, numbers in hex, as perf's
 * dso__load_perf_map() reads it. Pure.
 *
 * The reader takes input in pieces of any size and passes well-formed lines on. The writer is not
 * trusted: invalid lines are counted and skipped, and the memory for a line is bounded.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "object/perfmap/perfmap_table.h"

/* bytes of a name that are kept; a longer name is cut, and counted */
#define PERFMAP_NAME_MAX 4096u
#define PERFMAP_LINE_MAX (PERFMAP_NAME_MAX + 64u)

/* Zero-initialise; holds no memory of its own. */
struct perfmap_text {
	uint64_t lines; /* complete lines seen */
	/* invalid lines: not "HEX HEX NAME", size 0, or beyond the address space */
	uint64_t refused;
	uint64_t cut; /* entries whose name was cut */
	size_t held;  /* buffered bytes of an incomplete line */
	int overlong; /* the rest of that line is skipped */
	char line[PERFMAP_LINE_MAX];
};

/* name is not terminated. Anything but 0 ends the reading and is returned. */
typedef int (*perfmap_text_fn)(void *context, uint64_t start, uint64_t size, const char *name,
			       size_t name_bytes);

/* 0, or what the callback returned; the input after that line is then lost. */
int perfmap_text_read(struct perfmap_text *text, const char *data, size_t bytes,
		      perfmap_text_fn entry, void *context);

/* Anything but 0 ends the writing and is returned. */
typedef int (*perfmap_write_fn)(void *context, const char *data, size_t bytes);

/* Writes the line of one entry. 0, or what write() returned. */
int perfmap_line_write(const struct perfmap_entry *entry, const char *name, perfmap_write_fn write,
		       void *context);
/*
 * Writes the table, sorted and without overlaps, one terminated line per entry; control bytes and
 * invalid UTF-8 in names are written as \xNN. CPython's PyUnstable_CopyPerfMapFile() fails on a
 * file whose size is a multiple of 4096 and terminates the forked child that called it. In that
 * case an empty line is appended, which perf skips.
 */
int perfmap_text_write(const struct perfmap_table *table, perfmap_write_fn write, void *context);
