/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the text of a perf map, in pieces whose size the first byte gives, into a table, and writes
 * it again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "object/perfmap/text.h"
#include "util/buffer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int table_take(void *context, uint64_t start, uint64_t size, const char *name,
		      size_t name_bytes)
{
	struct perfmap_entry entry = {0};

	if (perfmap_table_add(context, start, size, name, name_bytes, &entry))
		abort(); /* the parser never reports an invalid entry */
	return 0;
}

static int buffer_take(void *context, const char *data, size_t bytes)
{
	return buffer_append(context, data, bytes);
}

static void through(const char *data, size_t size, size_t piece, struct buffer *out)
{
	struct perfmap_text *text = calloc(1, sizeof(*text));
	struct perfmap_table *table;

	if (!text || perfmap_table_new(&table))
		abort();
	for (size_t at = 0; at < size; at += piece)
		perfmap_text_read(text, data + at, size - at < piece ? size - at : piece,
				  table_take, table);
	perfmap_text_write(table, buffer_take, out);
	perfmap_table_free(table);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buffer once = {0}, twice = {0};

	if (!size)
		return 0;
	through((const char *)data + 1, size - 1, data[0] + 1, &once);
	/* Written text reads back as the same, unless an escape has made a name too long. */
	if (once.size < PERFMAP_NAME_MAX) {
		through((char *)once.data, once.size, 4096, &twice);
		if (once.size != twice.size || memcmp(once.data, twice.data, once.size))
			abort();
	}
	buffer_free(&once);
	buffer_free(&twice);
	return 0;
}
