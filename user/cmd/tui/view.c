/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/tui/view.h"

#include <curses.h>
#include <string.h>

#include "session/ctl/request.h"

#define KEY_ESCAPE 27

const char *watch_help(void)
{
	return "up, down, j, k, PgUp, PgDn, Home, End   move\n"
	       "Enter     open the row: its tracebacks, and the source around\n"
	       "Esc       close what is open\n"
	       "s         sort by size, count, growth, allocation, difference\n"
	       "g         group by line, function, file, traceback, process, container,\n"
	       "          thread, task or value (of a trace that was begun with --by task,\n"
	       "          context or local)\n"
	       "1 to 8    the same directly\n"
	       "a         ages: columns of the oldest and the median age of each row's blocks\n"
	       "/         filter: only rows with this text\n"
	       "m         mark: the column DIFF shows what has changed since\n"
	       "u         remove the mark\n"
	       "l         layer: python, native, mapped memory, each process's first\n"
	       "p, space  pause\n"
	       "w         write a snapshot to a file in this directory\n"
	       "h, ?      this page\n"
	       "q         quit\n"
	       "\n"
	       "By thread, task, value: what it has allocated and is alive. Changing to it, to\n"
	       "ages and back begins with a new history, without the mark.\n"
	       "SIZE and COUNT are live blocks. GROWTH/s is bytes a second over the last 10 s.\n"
	       "In census mode blocks that died count until the next heap walk; the header says\n"
	       "how old the last one is. Refreshes are further apart where they would take more\n"
	       "than 1 % of a CPU.\n";
}

static void filter_key(struct watch_view *view, int key)
{
	size_t length = strlen(view->typed);

	if (key == '\n' || key == '\r' || key == KEY_ENTER) {
		view->prompting = 0;
		watch_groups_filter(&view->groups, view->typed);
		view->cursor = view->top = 0;
	} else if (key == KEY_ESCAPE) {
		view->prompting = 0;
	} else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && length) {
		do
			view->typed[--length] = '\0';
		while (length && (view->typed[length - 1] & 0xc0) == 0xc0);
	} else if (key >= ' ' && key < 256 && key != 127 && length + 1 < sizeof(view->typed)) {
		view->typed[length] = (char)key;
		view->typed[length + 1] = '\0';
	}
}

/* Moves a position among count lines, page of which are visible. 1: the key does that. */
static int move_key(int key, size_t page, size_t count, size_t *at)
{
	size_t last = count ? count - 1 : 0;

	switch (key) {
	case KEY_UP:
	case 'k':
		*at -= *at > 0;
		break;
	case KEY_DOWN:
	case 'j':
		*at += *at < last;
		break;
	case KEY_PPAGE:
		*at = *at > page ? *at - page : 0;
		break;
	case KEY_NPAGE:
		*at = *at + page < last ? *at + page : last;
		break;
	case KEY_HOME:
		*at = 0;
		break;
	case KEY_END:
		*at = last;
		break;
	default:
		return 0;
	}
	return 1;
}

/* Sums by thread, by task and by age are asked for only while they are shown. */
static void by_change(struct watch_view *view, struct watch_model *model, enum watch_by by)
{
	enum request_by sums = by == WATCH_THREAD ? REQUEST_BY_THREAD
			       : by == WATCH_TASK ? REQUEST_BY_TASK
			       : view->by_age     ? REQUEST_BY_AGE
						  : REQUEST_BY_STACK;

	if (by == WATCH_TASK && !watch_model_tells(model, SUMS_TELLS)) {
		snprintf(view->message, sizeof(view->message),
			 "tasks are told of a trace that was begun with --by task, values with "
			 "--by context or local");
		return;
	}
	if (sums != model->by)
		watch_model_restart(model, sums);
	watch_groups_by(&view->groups, model, by);
	view->cursor = view->top = 0;
}

static void ages_change(struct watch_view *view, struct watch_model *model)
{
	view->by_age = !view->by_age;
	if (view->by_age && (view->groups.by == WATCH_THREAD || view->groups.by == WATCH_TASK))
		snprintf(view->message, sizeof(view->message),
			 "ages are shown of other rows than those by thread and by task");
	by_change(view, model, view->groups.by);
}

static enum watch_action layer_change(struct watch_view *view, struct watch_model *model)
{
	view->layer = (view->layer + 1) % (EVENT_LAYERS + 1);
	view->cursor = view->top = 0;
	watch_model_restart(model, model->by);
	snprintf(view->message, sizeof(view->message), "layer: %s",
		 view->layer ? event_layer_name(view->layer - 1) : "each process's first");
	return WATCH_ASK;
}

/* Keys that change what the rows are. 1: done. */
static int rows_key(struct watch_view *view, struct watch_model *model, int key)
{
	enum watch_by by;

	switch (key) {
	case 's':
		view->groups.sort = (view->groups.sort + 1) % WATCH_SORTS;
		if (view->groups.sort == WATCH_DIFF && !model->mark_ns)
			view->groups.sort = WATCH_SIZE;
		return 1;
	case 'g':
		by = (view->groups.by + 1) % WATCH_BYS;
		by_change(view, model,
			  by == WATCH_TASK && !watch_model_tells(model, SUMS_TELLS) ? 0 : by);
		return 1;
	case 'a':
		ages_change(view, model);
		return 1;
	case '/':
		view->prompting = 1;
		snprintf(view->typed, sizeof(view->typed), "%s", view->groups.filter);
		return 1;
	case 'm':
		watch_model_mark(model, 0);
		return 1;
	case 'u':
		watch_model_mark(model, 1);
		if (view->groups.sort == WATCH_DIFF)
			view->groups.sort = WATCH_SIZE;
		return 1;
	case 'p':
	case ' ':
		view->paused = !view->paused;
		return 1;
	case 'h':
	case '?':
		view->help = 1;
		return 1;
	}
	if (key < '1' || key >= '1' + WATCH_BYS)
		return 0;
	by_change(view, model, (enum watch_by)(key - '1'));
	return 1;
}

static enum watch_action row_open(struct watch_view *view, const uint32_t *rows, size_t count)
{
	if (view->cursor >= count)
		return WATCH_DRAW;
	view->opened = 1;
	view->open_key = view->groups.items[rows[view->cursor]].key;
	view->open_top = 0;
	return WATCH_OPEN;
}

static int opened_key(struct watch_view *view, int key)
{
	if (key != KEY_ESCAPE && key != KEY_LEFT && key != KEY_BACKSPACE && key != '\n' &&
	    key != '\r' && key != KEY_ENTER)
		return move_key(key, view->page, SIZE_MAX, &view->open_top);
	view->opened = 0;
	return 2;
}

enum watch_action watch_view_key(struct watch_view *view, struct watch_model *model, int key,
				 const uint32_t *rows, size_t count)
{
	enum request_by by = model->by;

	view->message[0] = '\0';
	if (view->prompting) {
		filter_key(view, key);
		return WATCH_DRAW;
	}
	if (view->help && key != KEY_RESIZE) {
		view->help = 0;
		return key == 'q' ? WATCH_QUIT : WATCH_DRAW;
	}
	int done = view->opened ? opened_key(view, key) : 0;
	if (done)
		return done == 2 ? WATCH_OPEN : WATCH_DRAW;
	switch (key) {
	case 'q':
	case 3: /* Ctrl-C, if the terminal sends it as a key */
		return WATCH_QUIT;
	case 'w':
		return WATCH_SAVE;
	case 'l':
		return layer_change(view, model);
	case '\n':
	case '\r':
	case KEY_ENTER:
	case KEY_RIGHT:
		return row_open(view, rows, count);
	}
	if (!rows_key(view, model, key))
		move_key(key, view->page, view->groups.rows, &view->cursor);
	return model->by == by ? WATCH_DRAW : WATCH_ASK;
}
