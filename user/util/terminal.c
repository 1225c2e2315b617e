/* SPDX-License-Identifier: Apache-2.0 */
#include "util/terminal.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "util/utf8.h"

#define COLUMNS_MAX 16u
#define GAP         2u  /* between columns */
#define LAST_LEAST  36u /* the last column has that at least, if others can be left out for it */
#define WIDTH_LEAST 24u /* a terminal that says less is not believed */
#define BROKEN_BY   4u  /* what the rest of a broken line is indented by */

/* One character, or an escape sequence, at *at, which is not empty: how many columns it takes. */
static size_t character_columns(const char **at)
{
	uint32_t c;

	if (**at == '\033') {
		*at += strcspn(*at, "m");
		*at += **at != '\0';
		return 0;
	}
	*at += utf8_take(*at, &c);
	if (c >= 0x300 && c < 0x370)
		return 0;
	return (c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xa4d0) ||
			       (c >= 0xac00 && c < 0xd7a4) || (c >= 0xf900 && c < 0xfb00) ||
			       (c >= 0xfe30 && c < 0xfe70) || (c >= 0xff00 && c < 0xff61) ||
			       (c >= 0x1f300 && c < 0x1fb00) || (c >= 0x20000 && c < 0x40000)
		       ? 2
		       : 1;
}

static size_t columns_of(const char *text, size_t bytes)
{
	const char *end = text + bytes;
	size_t columns = 0;

	while (text < end)
		columns += character_columns(&text);
	return columns;
}

/* The bytes of the beginning that fits into columns. */
static size_t fitting(const char *text, size_t bytes, size_t columns)
{
	const char *at = text, *end = text + bytes;

	for (size_t used = 0; at < end;) {
		const char *next = at;

		used += character_columns(&next);
		if (used > columns)
			break;
		at = next;
	}
	return (size_t)(at - text);
}

static void spaces(FILE *out, size_t count)
{
	fprintf(out, "%*s", (int)count, "");
}

/* --- lines ---------------------------------------------------------------------------------- */

static void line_print(FILE *out, const char *line, size_t bytes, size_t width)
{
	size_t indent = 0;

	while (indent < bytes && line[indent] == ' ')
		indent++;
	for (size_t room = width, after = indent + BROKEN_BY; columns_of(line, bytes) > room;
	     room = width - after) {
		size_t cut = fitting(line, bytes, room + 1), at = cut;

		if (after >= width / 2)
			break;
		while (at > indent && line[at - 1] != ' ')
			at--;
		if (at <= indent) { /* one long word */
			for (at = cut; at < bytes && line[at - 1] != ' ';)
				at++;
			if (at == bytes)
				break;
		}
		fwrite(line, 1, at - 1, out);
		putc('\n', out);
		spaces(out, after);
		line += at;
		bytes -= at;
		indent = 0;
	}
	fwrite(line, 1, bytes, out);
	putc('\n', out);
}

/* --- tables --------------------------------------------------------------------------------- */

struct terminal_cell {
	const char *text;
	size_t bytes;
};

struct table {
	size_t count; /* of columns */
	struct terminal_cell titles[COLUMNS_MAX];
	int is_left[COLUMNS_MAX], may_go[COLUMNS_MAX];
	size_t widths[COLUMNS_MAX]; /* 0: left out */
};

static size_t row_split(const char *line, size_t bytes, struct terminal_cell cells[COLUMNS_MAX])
{
	const char *end = line + bytes;
	size_t count = 0;

	while (count < COLUMNS_MAX) {
		const char *tab = memchr(line, '\t', (size_t)(end - line));

		if (count + 1 == COLUMNS_MAX)
			tab = NULL;
		cells[count++] = (struct terminal_cell){line, (size_t)((tab ? tab : end) - line)};
		if (!tab)
			break;
		line = tab + 1;
	}
	return count;
}

static void titles_read(struct table *table, const char *line, size_t bytes)
{
	table->count = row_split(line, bytes, table->titles);
	for (size_t i = 0; i < table->count; i++) {
		struct terminal_cell *title = &table->titles[i];

		for (; title->bytes && (*title->text == '?' || *title->text == '<');
		     title->text++, title->bytes--) {
			table->may_go[i] |= *title->text == '?';
			table->is_left[i] |= *title->text == '<';
		}
	}
}

static bool is_row(const char *line, size_t bytes)
{
	return memchr(line, '\t', bytes) != NULL;
}

/* The end of the table that begins there: of its last row, and the notes below it. */
static const char *table_end(const char *text)
{
	for (;;) {
		size_t bytes = strcspn(text, "\n");

		if (!bytes || (!is_row(text, bytes) && *text != ' '))
			return text;
		text += bytes;
		if (!*text)
			return text;
		text++;
	}
}

/* The widths of the columns that have a text in one of the rows. */
static void widths_find(struct table *table, const char *text, const char *end, size_t width)
{
	size_t used = 0, last = table->count - 1;

	while (text < end) {
		struct terminal_cell cells[COLUMNS_MAX];
		size_t bytes = strcspn(text, "\n");
		size_t count = is_row(text, bytes) ? row_split(text, bytes, cells) : 0;

		for (size_t i = 0; i < count && i < last; i++) {
			size_t columns = columns_of(cells[i].text, cells[i].bytes);

			if (columns > table->widths[i])
				table->widths[i] = columns;
		}
		text += bytes + 1;
	}
	for (size_t i = 0; i < last; i++) {
		size_t title = columns_of(table->titles[i].text, table->titles[i].bytes);

		if (table->widths[i] && table->widths[i] < title)
			table->widths[i] = title;
		used += table->widths[i] ? table->widths[i] + GAP : 0;
	}
	for (size_t i = last; i-- > 0 && used + LAST_LEAST > width;) {
		if (!table->may_go[i] || !table->widths[i])
			continue;
		used -= table->widths[i] + GAP;
		table->widths[i] = 0;
	}
	table->widths[last] = used < width ? width - used : 1;
}

/* The last column: what is too long lacks its middle; of a path the end tells more. */
static void last_print(FILE *out, const struct terminal_cell *cell, size_t width)
{
	size_t columns = columns_of(cell->text, cell->bytes), head, tail;

	if (columns <= width) {
		fwrite(cell->text, 1, cell->bytes, out);
		return;
	}
	head = fitting(cell->text, cell->bytes, (width - 1) / 3);
	tail = fitting(cell->text, cell->bytes,
		       columns - (width - 1 - columns_of(cell->text, head)));
	fwrite(cell->text, 1, head, out);
	fputs("…", out);
	fwrite(cell->text + tail, 1, cell->bytes - tail, out);
}

static void row_print(FILE *out, const struct table *table, const struct terminal_cell *cells,
		      size_t count)
{
	size_t last = table->count - 1;

	for (size_t i = 0; i < last && i < count; i++) {
		size_t columns = columns_of(cells[i].text, cells[i].bytes);
		size_t pad = table->widths[i] > columns ? table->widths[i] - columns : 0;

		if (!table->widths[i])
			continue;
		spaces(out, table->is_left[i] ? 0 : pad);
		fwrite(cells[i].text, 1, cells[i].bytes, out);
		spaces(out, (table->is_left[i] ? pad : 0) + GAP);
	}
	if (count == table->count)
		last_print(out, &cells[last], table->widths[last]);
	putc('\n', out);
}

/* Returns the table's end. */
static const char *table_print(FILE *out, const char *text, size_t width)
{
	const char *end = table_end(text);
	size_t bytes = strcspn(text, "\n");
	struct table table = {0};

	titles_read(&table, text, bytes);
	widths_find(&table, text + bytes + 1, end, width);
	row_print(out, &table, table.titles, table.count);
	for (text += bytes + 1; text < end; text += bytes + 1) {
		struct terminal_cell cells[COLUMNS_MAX];

		bytes = strcspn(text, "\n");
		if (is_row(text, bytes))
			row_print(out, &table, cells, row_split(text, bytes, cells));
		else
			line_print(out, text, bytes, width);
	}
	return end;
}

/* --- pages ---------------------------------------------------------------------------------- */

void terminal_print(FILE *out, const char *text, size_t width)
{
	while (*text) {
		size_t bytes = strcspn(text, "\n");

		if (is_row(text, bytes)) {
			text = table_print(out, text, width);
			continue;
		}
		line_print(out, text, bytes, width);
		text += bytes + (text[bytes] != '\0');
	}
}

size_t terminal_width(FILE *out)
{
	struct winsize size;
	int fd = fileno(out);

	if (fd < 0 || !isatty(fd) || ioctl(fd, TIOCGWINSZ, &size) || size.ws_col < WIDTH_LEAST)
		return 0;
	return size.ws_col;
}

void terminal_begin(struct terminal *terminal, FILE **stream)
{
	*terminal = (struct terminal){.stream = stream, .width = terminal_width(*stream)};
	FILE *collecting =
		terminal->width ? open_memstream(&terminal->text, &terminal->bytes) : NULL;
	if (!collecting)
		return;
	terminal->real = *stream;
	*stream = collecting;
}

void terminal_end(struct terminal *terminal)
{
	if (!terminal->real)
		return;
	FILE *collecting = *terminal->stream;
	*terminal->stream = terminal->real;
	if (!fclose(collecting) && terminal->text)
		terminal_print(terminal->real, terminal->text, terminal->width);
	free(terminal->text);
	terminal->real = NULL;
}
