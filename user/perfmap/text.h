/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a perf map, "START SIZE NAME" a line with numbers in hex, as perf's
 * dso__load_perf_map() reads it. Pure.
 *
 * Reading takes bytes as they come, in pieces of any size, and hands over the lines that are well
 * formed. Whoever wrote them is not trusted: what is no entry is counted and left out, and no line
 * needs more memory than an entry can.
 */
#ifndef TRACER_PERFMAP_TEXT_H
#define TRACER_PERFMAP_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "perfmap/table.h"

#define PERFMAP_NAME_MAX 4096u /* bytes of a name that are kept; the rest is cut off, and counted */
#define PERFMAP_LINE_MAX (PERFMAP_NAME_MAX + 64u)

/* Zero-initialise; holds no memory of its own. */
struct perfmap_text {
	uint64_t lines; /* complete lines seen */
	/* of those, no entries: not "HEX HEX NAME", size 0, or beyond the address space */
	uint64_t refused;
	uint64_t cut; /* of the entries, those whose name was cut */
	size_t held;  /* bytes of a line whose end has not come yet */
	int overlong; /* that line's rest is being skipped */
	char line[PERFMAP_LINE_MAX];
};

/* name is not terminated. Anything but 0 ends the reading and is returned. */
typedef int (*perfmap_text_fn)(void *context, uint64_t start, uint64_t size, const char *name,
			       size_t name_bytes);

/* One line without its end. 0, or -EINVAL: it is no entry. *name points into it. */
int perfmap_text_line(const char *line, size_t bytes, uint64_t *start, uint64_t *size,
		      const char **name, size_t *name_bytes);
/* 0, or what the callback returned; the bytes behind that line are then lost. */
int perfmap_text_read(struct perfmap_text *text, const char *data, size_t bytes,
		      perfmap_text_fn entry, void *context);

/* Anything but 0 ends the writing and is returned. */
typedef int (*perfmap_write_fn)(void *context, const char *data, size_t bytes);

/*
 * Writes the table: sorted, non-overlapping, one line each, the last one ended; control bytes and
 * what is no UTF-8 in names as \xNN. The number of bytes is never a multiple of 4096, since
 * CPython's PyUnstable_CopyPerfMapFile() fails on such a file (and ends the forked child that
 * called it): an empty line, which perf skips, sees to that.
 */
int perfmap_text_write(const struct perfmap_table *table, perfmap_write_fn write, void *context);

#endif
