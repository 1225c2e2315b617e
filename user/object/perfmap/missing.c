/* SPDX-License-Identifier: Apache-2.0 */
#include "object/perfmap/missing.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "object/perfmap/follow.h"
#include "object/perfmap/text.h"
#include "util/error.h"

#define PIECE_BYTES 65536

static int line_take(void *context, uint64_t start, uint64_t size, const char *name,
		     size_t name_bytes)
{
	const struct perfmap_entry entry = {0};

	return perfmap_table_add(context, start, size, name, name_bytes, &entry);
}

static int lines_read(struct perfmap_table *lines, int fd, int *partial)
{
	struct perfmap_text *text = calloc(1, sizeof(*text));
	char piece[PIECE_BYTES];
	uint64_t offset = 0;
	ssize_t n = 1;
	int err = text ? 0 : -ENOMEM;

	while (!err && (n = pread(fd, piece, sizeof(piece), offset)) > 0) {
		offset += n;
		err = offset > PERFMAP_FILE_MAX
			      ? -EFBIG
			      : perfmap_text_read(text, piece, n, line_take, lines);
	}
	if (!err && n < 0)
		err = error_errno();
	*partial = !err && text->held;
	free(text);
	return err;
}

static int text_take(void *context, const char *data, size_t bytes)
{
	return buffer_append(context, data, bytes);
}

/* A name of several lines is cut at its first line end in the file. */
static int names_agree(const char *name, const char *line)
{
	size_t bytes = strlen(line);

	return !strncmp(name, line, bytes) && (!name[bytes] || name[bytes] == '\n');
}

static int entry_compare(struct perfmap_missing *missing, const struct perfmap_entry *entry,
			 const char *name, const struct perfmap_table *lines)
{
	const struct perfmap_entry *line = perfmap_table_after(lines, entry->start);

	if (line && line->start < entry->end) {
		missing->conflicts += !names_agree(name, perfmap_table_name(lines, line));
		return 0;
	}
	missing->count++;
	return perfmap_line_write(entry, name, text_take, &missing->text);
}

int perfmap_missing_find(struct perfmap_missing *missing, const struct perfmap_table *table, int fd,
			 struct account *account)
{
	const struct perfmap_entry *entry;
	struct perfmap_table *lines;
	size_t cursor = 0;
	int err = perfmap_table_new_in(&lines, account);

	if (err)
		return err;
	err = lines_read(lines, fd, &missing->partial);
	if (!err && missing->partial)
		err = buffer_append(&missing->text, "\n", 1);
	while (!err && (entry = perfmap_table_next(table, &cursor)))
		err = entry_compare(missing, entry, perfmap_table_name(table, entry), lines);
	perfmap_table_free(lines);
	return err;
}
