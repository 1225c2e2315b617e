/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/tui/screen.h"

#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <unistd.h>
#include <wchar.h>

#include "report/recording/recording_load.h"
#include "tui/terminals.h"
#include "util/array.h"
#include "util/error.h"
#include "util/size.h"
#include "util/text.h"

#define CELLS     1024 /* of one line, at most */
#define WIDE      92   /* below it there is no rate of allocation, */
#define NARROW    60   /* below it there are no sparklines, */
#define NARROWER  44   /* no numbers of blocks, */
#define NARROWEST 30   /* and no growth */
#define SMALL     10   /* lines: a lower screen shows one line of the header */
#define ESCAPE_MS 25

enum { COLOR_UP = 1, COLOR_DOWN };

/*
 * The description of the terminal, where the machine has no database of terminals, as containers
 * and rescue systems: ncurses takes it from the environment, too. NULL: it is not known.
 */
static const char *description_own(const char *kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(terminals); i++)
		if (!strcmp(terminals[i].kind, kind))
			return terminals[i].description;
	return NULL;
}

/* Calls take() with the machine's description of the terminal, or else with the tracer's own. */
static bool terminal_take(bool (*take)(void), const char *kind)
{
	const char *own = description_own(kind);

	if (take())
		return 1;
	if (!own || setenv("TERMINFO", own, 1))
		return 0;
	bool taken = take();
	unsetenv("TERMINFO");
	return taken;
}

static bool setup_take(void)
{
	int err;

	return setupterm(NULL, STDOUT_FILENO, &err) == OK;
}

static bool screen_take(void)
{
	return newterm(NULL, stdout, stdin) != NULL;
}

bool watch_screen_is_possible(void)
{
	const char *kind = getenv("TERM");

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !kind || !kind[0])
		return 0;
	if (!terminal_take(setup_take, kind)) {
		log_info("no live view: nothing is known here about the terminal %s; TERM=xterm "
			 "serves for most",
			 kind);
		return 0;
	}
	const char *place = tigetstr("cup");
	return place && place != (char *)-1 && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

int watch_screen_begin(void)
{
	setlocale(LC_CTYPE, "");
	set_escdelay(ESCAPE_MS);
	if (!terminal_take(screen_take, getenv("TERM") ?: ""))
		return error_set(-ENOTTY, "ncurses does not know the terminal");
	cbreak();
	noecho();
	nonl();
	intrflush(stdscr, FALSE);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	if (has_colors() && !getenv("NO_COLOR") && start_color() == OK) {
		use_default_colors();
		init_pair(COLOR_UP, COLOR_RED, -1);
		init_pair(COLOR_DOWN, COLOR_GREEN, -1);
	}
	return 0;
}

void watch_screen_end(void)
{
	if (stdscr && !isendwin())
		endwin();
}

size_t watch_screen_rows(void)
{
	return LINES > 0 ? (size_t)LINES : 1;
}

static bool is_unicode(void)
{
	return MB_CUR_MAX > 1;
}

/* The text as the terminal's characters, '?' for what the locale cannot show. Returns how many. */
static size_t wide_make(const char *text, wchar_t *out)
{
	size_t count = 0;
	mbstate_t state = {0};

	while (*text && count < CELLS) {
		size_t bytes = mbrtowc(&out[count], text, MB_CUR_MAX, &state);

		if (bytes == 0 || bytes > MB_CUR_MAX || wcwidth(out[count]) < 0) {
			/* one '?' for each character, not for each of its bytes */
			bytes = 1;
			state = (mbstate_t){0};
			while (!is_unicode() && ((unsigned char)text[bytes] & 0xc0) == 0x80)
				bytes++;
			out[count] = L'?';
		}
		text += bytes;
		count++;
	}
	return count;
}

static int wide_width(const wchar_t *text, size_t count)
{
	int width = 0;

	for (size_t i = 0; i < count; i++)
		width += wcwidth(text[i]);
	return width;
}

/* Prints a text in that many columns. middle: too long a text is cut there, not at its end. */
static void put(int y, int x, int width, const char *text, int middle)
{
	wchar_t wide[CELLS + 1];
	size_t count = wide_make(text, wide), head, tail;
	const wchar_t *mark = is_unicode() ? L"\u2026" : L"~";

	if (width <= 0)
		return;
	if (wide_width(wide, count) <= width) {
		mvaddnwstr(y, x, wide, (int)count);
		return;
	}
	head = tail = 0;
	while (wide_width(wide, head + 1) <= (middle ? (width - 1) / 3 : width - 1))
		head++;
	while (middle &&
	       wide_width(wide, head) + wide_width(wide + count - tail - 1, tail + 1) <= width - 1)
		tail++;
	mvaddnwstr(y, x, wide, (int)head);
	addnwstr(mark, 1);
	addnwstr(wide + count - tail, (int)tail);
}

/* The history as 16 bars, scaled to its highest. */
static void sparkline_put(int y, int x, const float *values)
{
	static const wchar_t bars[] = L"\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588";
	static const wchar_t plain[] = L".:-=+*%#";
	float high = 0;

	for (uint32_t i = 0; i < WATCH_HISTORY; i++)
		high = values[i] > high ? values[i] : high;
	for (uint32_t i = 0; i < WATCH_HISTORY; i++) {
		wchar_t c = L' ';

		if (values[i] > 0)
			c = (is_unicode() ? bars : plain)[(int)(values[i] / high * 7)];
		mvaddnwstr(y, x + (int)i, &c, 1);
	}
}

/* A column of numbers: width columns from x on, aligned to the right. Returns the next x. */
static int number_put(int y, int x, int width, const char *text)
{
	mvprintw(y, x, "%*s", width, text);
	return x + width + 1;
}

static int change_put(int y, int x, int width, double bytes)
{
	int color = bytes >= 0.5 ? COLOR_UP : bytes <= -0.5 ? COLOR_DOWN : 0;
	char text[SIZE_TEXT_MAX];

	size_format(text, bytes, 1);
	if (color && has_colors())
		attron(COLOR_PAIR(color));
	x = number_put(y, x, width, color ? text : "0 B");
	if (color && has_colors())
		attroff(COLOR_PAIR(color));
	return x;
}

/* Is there a column of what is allocated? Some process must tell it. */
static bool has_rates(const struct watch_model *model)
{
	uint32_t flags = 0;

	for (size_t i = 0; i < model->process_count; i++)
		flags |= model->processes[i].info.flags;
	return COLS >= WIDE && flags & SUMS_ALLOCATED;
}

static bool has_ages(const struct watch_model *model)
{
	return model->by == REQUEST_BY_AGE && COLS >= NARROW;
}

/* Ages take the place of the sizes so far where there is not room for both. */
static bool has_history(const struct watch_model *model)
{
	return COLS >= (has_ages(model) ? WIDE : NARROW);
}

static int age_put(int y, int x, uint32_t age)
{
	char text[RECORDING_DURATION_BYTES];

	return number_put(y, x, 11, age ? recording_duration_text(text, age * AGE_UNIT_NS) : "");
}

static void heads_put(const struct watch_model *model, int y, const char *name)
{
	attron(A_REVERSE);
	mvhline(y, 0, ' ', COLS);
	int x = number_put(y, 0, 10, "SIZE");
	if (COLS >= NARROWER)
		x = number_put(y, x, 11, "COUNT");
	if (model->mark_ns && COLS >= NARROWEST)
		x = number_put(y, x, 11, "DIFF");
	if (COLS >= NARROWEST)
		x = number_put(y, x, 11, "GROWTH/s");
	if (has_rates(model))
		x = number_put(y, x, 11, "ALLOC/s");
	if (has_ages(model)) {
		x = number_put(y, x, 11, "OLDEST");
		x = number_put(y, x, 11, "MEDIAN AGE");
	}
	if (has_history(model)) {
		put(y, x, (int)WATCH_HISTORY, "SIZE SO FAR", 0);
		x += (int)WATCH_HISTORY + 1;
	}
	put(y, x, COLS - x, name, 0);
	attroff(A_REVERSE);
}

static void row_put(const struct watch_view *view, const struct watch_model *model,
		    const struct watch_group *group, int y)
{
	const float *history = watch_groups_history(&view->groups, group);
	char number[SIZE_TEXT_MAX], *label = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&label, &bytes);

	if (out)
		watch_group_label(&view->groups, model, group, out);
	size_text(number, (uint64_t)group->size);
	int x = number_put(y, 0, 10, number);
	if (COLS >= NARROWER)
		x = number_put(y, x, 11, text_count(number, (uint64_t)(group->count + 0.5)));
	if (model->mark_ns && COLS >= NARROWEST)
		x = change_put(y, x, 11, group->size - group->mark_size);
	if (COLS >= NARROWEST)
		x = change_put(y, x, 11, group->growth);
	if (has_rates(model))
		x = number_put(y, x, 11, size_text(number, (uint64_t)group->allocated));
	if (has_ages(model)) {
		x = age_put(y, x, group->oldest);
		x = age_put(y, x, group->median);
	}
	if (has_history(model)) {
		if (history)
			sparkline_put(y, x, history);
		x += (int)WATCH_HISTORY + 1;
	}
	if (out && !fclose(out))
		put(y, x, COLS - x, label, 1);
	free(label);
}

/* Prints lines of a text, from line top on; returns how many it has. */
static size_t lines_put(const char *text, size_t top, int y, int height)
{
	size_t count = 0;
	char *copy = strdup(text), *rest = copy, *line;

	while (copy && (line = strsep(&rest, "\n"))) {
		if (!rest && !line[0])
			break;
		if (count >= top && count - top < (size_t)height)
			put(y + (int)(count - top), 0, COLS, line, 0);
		count++;
	}
	free(copy);
	return count;
}

static void footer_put(const struct watch_view *view)
{
	char text[sizeof(view->typed) * 4 + 16] = "filter: ";

	if (view->prompting)
		text_escape(text + 8, sizeof(text) - 9, view->typed), strcat(text, "_");
	else if (view->message[0])
		text_escape(text, sizeof(text), view->message);
	else
		snprintf(text, sizeof(text),
			 view->ends_session ? "q quit and report  h help  s sort  g group  / filter"
					      "  m mark  Enter open"
					    : "q quit  h help  s sort  g group  / filter  m mark"
					      "  Enter open");
	attron(A_BOLD);
	put(LINES - 1, 0, COLS - 1, text, 0);
	attroff(A_BOLD);
}

/* Keeps the cursor on a row, and the row on the screen. */
static void cursor_keep(struct watch_view *view)
{
	if (view->cursor >= view->groups.rows)
		view->cursor = view->groups.rows ? view->groups.rows - 1 : 0;
	if (view->cursor < view->top)
		view->top = view->cursor;
	if (view->cursor >= view->top + view->page)
		view->top = view->cursor - view->page + 1;
}

static void rows_put(struct watch_view *view, const struct watch_model *model, const uint32_t *rows,
		     size_t count, int y)
{
	heads_put(model, y++, watch_by_name(model, view->groups.by));
	for (size_t i = 0; i < view->page && view->top + i < count; i++, y++) {
		row_put(view, model, &view->groups.items[rows[view->top + i]], y);
		if (view->top + i == view->cursor)
			mvchgat(y, 0, -1, A_REVERSE, 0, NULL);
	}
}

static int header_lines(const char *header)
{
	int ends = 0;

	for (; *header; header++)
		ends += *header == '\n';
	return ends > WATCH_HEADER ? ends : WATCH_HEADER;
}

void watch_screen_draw(struct watch_view *view, const struct watch_model *model,
		       const uint32_t *rows, size_t count, const char *header, const char *detail)
{
	int y = LINES < SMALL ? 1 : header_lines(header);
	int height = LINES - y - 1;
	size_t printed;

	erase();
	lines_put(header, LINES < SMALL ? 1 : 0, 0, y);
	if (y > 1 && COLS >= NARROW + 40) {
		float totals[WATCH_HISTORY];

		for (uint32_t i = 0; i < WATCH_HISTORY; i++)
			totals[i] = model->totals[(model->slot + 1 + i) % WATCH_HISTORY];
		sparkline_put(1, COLS - (int)WATCH_HISTORY, totals);
	}
	view->page = height > 1 ? (size_t)height - 1 : 1;
	if (view->help || (view->opened && detail)) {
		printed = lines_put(view->help ? watch_help() : detail,
				    view->help ? 0 : view->open_top, y, height);
		if (!view->help && view->open_top + (size_t)height > printed)
			view->open_top = printed > (size_t)height ? printed - (size_t)height : 0;
	} else if (height > 0) {
		cursor_keep(view);
		rows_put(view, model, rows, count, y);
	}
	footer_put(view);
	refresh();
}
