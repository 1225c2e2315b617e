/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are more than one of a table: a filter is typed, a row opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <curses.h>

#include "watch_world.h"

static void filter_is_typed(void **state)
{
	struct world *world = *state;

	press(world, '/');
	press(world, 'A');
	press(world, 'x');
	press(world, KEY_BACKSPACE);
	press(world, '.');
	assert_int_equal(world->view.prompting, 1);
	press(world, '\n');
	assert_row(world, 8, 0, "a.py:1 300 5 0 300");
	assert_int_equal(world->view.groups.rows, 1);
	press(world, '/');
	for (int i = 0; i < 300; i++)
		press(world, 'q');
	assert_int_equal(press(world, 27), WATCH_DRAW);
	assert_string_equal(world->view.groups.filter, "A.");
	assert_int_equal(press(world, 'q'), WATCH_QUIT);
}

static void rows_open(void **state)
{
	struct world *world = *state;
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	press(world, KEY_DOWN);
	world->view.top = 1; /* scrolled: the row under the cursor is opened all the same */
	assert_int_equal(press(world, '\n'), WATCH_OPEN);
	watch_detail(&world->view, &world->model, NULL, out);
	fclose(out);
	assert_string_equal(text, "b\\x1b.py:2\n\n1 traceback:\n\n50 B in 4 blocks\n"
				  "  b\\x1b.py:2 in g\n  a.py:1 in f\n");
	free(text);
	assert_int_equal(press(world, 27), WATCH_OPEN);
	assert_int_equal(world->view.opened, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(filter_is_typed),
		TEST(rows_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
