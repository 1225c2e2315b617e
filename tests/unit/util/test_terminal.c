/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/terminal.h"

static void laid_out(const char *text, size_t width, const char *expected)
{
	char *shown = NULL;
	size_t bytes;
	FILE *out = open_memstream(&shown, &bytes);

	assert_non_null(out);
	terminal_print(out, text, width);
	fclose(out);
	if (strcmp(shown, expected) != 0)
		fail_msg("is\n%s\nnot\n%s", shown, expected);
	free(shown);
}

static void test_lines(void **state)
{
	(void)state;
	laid_out("", 80, "");
	laid_out("short\n\nlines\n", 80, "short\n\nlines\n");
	laid_out("one two three four five six seven\n", 24,
		 "one two three four five\n    six seven\n");
	laid_out("  indented by two and longer\n", 24, "  indented by two and\n      longer\n");
	/* A word is not broken: it may be copied. */
	laid_out("path: /a/path/that/is/longer/than/a/line ends\n", 24,
		 "path:\n    /a/path/that/is/longer/than/a/line\n    ends\n");
	/* Colours take no room. */
	laid_out("\033[1mtwenty-four columns wide\033[0m\n", 24,
		 "\033[1mtwenty-four columns wide\033[0m\n");
}

static void test_columns(void **state)
{
	(void)state;
	laid_out("SIZE\tCOUNT\tLINE\n"
		 "1 B\t1,000\ta.py:1\n"
		 "120 KiB\t2\tb.py:2\n"
		 "Total\n",
		 80,
		 "   SIZE  COUNT  LINE\n"
		 "    1 B  1,000  a.py:1\n"
		 "120 KiB      2  b.py:2\n"
		 "Total\n");
	/* To the left; without a text; a row that ends early; bytes are no columns. */
	laid_out("<NAME\tNONE\tSIZE\tWHAT\n"
		 "\303\244\303\266\t\t1 B\tx\n"
		 "\344\270\255\t\t22 B\ty\n"
		 "abcd\t\t3 B\n",
		 80,
		 "NAME  SIZE  WHAT\n"
		 "\303\244\303\266     1 B  x\n"
		 "\344\270\255    22 B  y\n"
		 "abcd   3 B  \n");
}

static void test_narrow(void **state)
{
	static const char table[] = "SIZE\t?AVERAGE\t?PROCESSES\tLINE\n"
				    "1 B\t1 B\t4\t/usr/lib/python3/dist-packages/shop/cache.py:40\n"
				    "    a note on the row that is wider than the terminal\n";
	(void)state;

	laid_out(table, 80,
		 "SIZE  AVERAGE  PROCESSES  LINE\n"
		 " 1 B      1 B          4  /usr/lib/python3/dist-packages/shop/cache.py:40\n"
		 "    a note on the row that is wider than the terminal\n");
	laid_out(table, 54,
		 "SIZE  AVERAGE  LINE\n"
		 " 1 B      1 B  /usr/lib/pyt\342\200\246-packages/shop/cache.py:40\n"
		 "    a note on the row that is wider than the terminal\n");
	laid_out(table, 40,
		 "SIZE  LINE\n"
		 " 1 B  /usr/lib/py\342\200\246kages/shop/cache.py:40\n"
		 "    a note on the row that is wider than\n"
		 "        the terminal\n");
}

/* Columns of a line, of ASCII and of "…". */
static size_t columns(const char *line, size_t bytes)
{
	size_t count = 0;

	for (size_t i = 0; i < bytes; i++)
		count += ((unsigned char)line[i] & 0xc0) != 0x80;
	return count;
}

/* Words of at most 20 bytes, cells and lines of any: no line is wider than the terminal. */
static void test_any(void **state)
{
	(void)state;
	srand(1);
	for (int run = 0; run < 2000; run++) {
		size_t width = 44 + (size_t)rand() % 60, bytes, word = 0;
		char text[600], *shown = NULL;
		FILE *out = open_memstream(&shown, &bytes);

		assert_non_null(out);
		for (size_t i = 0; i < sizeof(text) - 1; i++) {
			char c = "abcdefgh \n\t"[(size_t)rand() % 11];

			if (c >= 'a' && ++word > 6)
				c = ' ';
			word = c >= 'a' ? word : 0;
			text[i] = c;
		}
		text[sizeof(text) - 1] = '\0';
		/* Two columns, of which the first is narrow. */
		for (char *tab = text, *row = text; (tab = strpbrk(tab, "\t\n")); tab++) {
			if (*tab == '\n')
				row = tab;
			else if (tab - row > 20 || memchr(row, '\t', (size_t)(tab - row)))
				*tab = ' ';
		}
		terminal_print(out, text, width);
		fclose(out);
		for (const char *line = shown; *line;) {
			size_t length = strcspn(line, "\n");

			if (columns(line, length) > width)
				fail_msg("%zu columns: %.*s", width, (int)length, line);
			line += length + (line[length] != '\0');
		}
		free(shown);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_narrow),
		cmocka_unit_test(test_any),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
