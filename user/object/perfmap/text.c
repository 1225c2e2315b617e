/* SPDX-License-Identifier: Apache-2.0 */
#include "object/perfmap/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "util/text.h"

/* PyUnstable_CopyPerfMapFile() reads blocks of this size. */
#define COPY_BYTES 4096

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/*
 * Reads a hex number, with or without 0x, and the blanks after it: at least one digit and one
 * blank.
 */
static int number_read(const char **at, const char *end, uint64_t *number)
{
	if (end - *at > 2 && (*at)[0] == '0' && ((*at)[1] | 0x20) == 'x')
		*at += 2;
	const char *first = *at;
	for (*number = 0; *at < end && digit_value(**at) >= 0; (*at)++) {
		if (*number >> 60)
			return -EINVAL;
		*number = *number << 4 | digit_value(**at);
	}
	if (*at == first || *at == end || !is_blank(**at))
		return -EINVAL;
	while (*at < end && is_blank(**at))
		(*at)++;
	return 0;
}

/* Parses one line without its line end. 0; -EINVAL: not an entry. *name points into the line. */
static int perfmap_text_line(const char *line, size_t bytes, uint64_t *start, uint64_t *size,
			     const char **name, size_t *name_bytes)
{
	const char *at = line, *end = line + bytes;

	if (number_read(&at, end, start) || number_read(&at, end, size))
		return -EINVAL;
	if (at == end || !*at || !*size || *start + *size < *start)
		return -EINVAL;
	*name = at;
	*name_bytes = end - at;
	return 0;
}

static int line_take(struct perfmap_text *text, perfmap_text_fn entry, void *context)
{
	uint64_t start, size;
	const char *name;
	size_t name_bytes;
	int cut = text->overlong;

	text->lines++;
	if (perfmap_text_line(text->line, text->held, &start, &size, &name, &name_bytes)) {
		text->refused++;
		return 0;
	}
	if (name_bytes > PERFMAP_NAME_MAX) {
		name_bytes = PERFMAP_NAME_MAX;
		cut = 1;
	}
	text->cut += cut;
	return entry(context, start, size, name, name_bytes);
}

int perfmap_text_read(struct perfmap_text *text, const char *data, size_t bytes,
		      perfmap_text_fn entry, void *context)
{
	int err = 0;

	while (bytes && !err) {
		const char *end = memchr(data, '\n', bytes);
		size_t piece = end ? (size_t)(end - data) : bytes;
		size_t capacity = sizeof(text->line) - text->held,
		       taken = piece < capacity ? piece : capacity;

		memcpy(text->line + text->held, data, taken);
		text->held += taken;
		text->overlong |= taken < piece;
		if (end) {
			/* Blank lines are ignored, as perf does. */
			if (text->held)
				err = line_take(text, entry, context);
			text->held = 0;
			text->overlong = 0;
			piece++;
		}
		data += piece;
		bytes -= piece;
	}
	return err;
}

int perfmap_line_write(const struct perfmap_entry *entry, const char *name, perfmap_write_fn write,
		       void *context)
{
	char line[48 + 4 * PERFMAP_NAME_MAX + 2];
	size_t length = snprintf(line, 48, "%" PRIx64 " %" PRIx64 " ", entry->start,
				 entry->end - entry->start);

	length += text_escape(line + length, sizeof(line) - length - 1, name);
	line[length++] = '\n';
	return write(context, line, length);
}

struct counted {
	perfmap_write_fn write;
	void *context;
	size_t bytes;
};

static int counted_write(void *context, const char *data, size_t bytes)
{
	struct counted *counted = context;

	counted->bytes += bytes;
	return counted->write(counted->context, data, bytes);
}

int perfmap_text_write(const struct perfmap_table *table, perfmap_write_fn write, void *context)
{
	struct counted counted = {.write = write, .context = context};
	const struct perfmap_entry *entry;
	size_t cursor = 0;
	int err = 0;

	while (!err && (entry = perfmap_table_next(table, &cursor)))
		err = perfmap_line_write(entry, perfmap_table_name(table, entry), counted_write,
					 &counted);
	if (!err && counted.bytes % COPY_BYTES == 0)
		err = write(context, "\n", 1);
	return err;
}
