/* SPDX-License-Identifier: Apache-2.0 */
/* Files of blocks: lines, frames and stacks, also of the first format; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/blocks/block_lines.h"
#include "util/error.h"

static int text_read(const char *text, struct block_lines *out)
{
	FILE *file = fmemopen((void *)text, strlen(text), "r");
	int err;

	*out = (struct block_lines){0};
	error_clear();
	err = block_lines_read(out, file);
	fclose(file);
	return err;
}

static void stacks_are_read(void **state)
{
	struct block_lines lines;
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	(void)state;
	block_lines_head(file, 7);
	block_lines_time(file, 1700000000000, 60000, true);
	block_lines_line(file, 0, "a.py", 3);
	block_lines_line(file, 1, "b\n.py", 4);
	block_lines_frame(file, 0, 0, "<module>");
	block_lines_frame(file, 1, 1, "f g");
	block_lines_stack(file, 0, 0, 0);
	block_lines_stack(file, 1, 0, 1);
	block_lines_block(file, &(struct block_line){0x2000, 16, 0, 0, 1});
	block_lines_block(file, &(struct block_line){0x1000, 16, 1, 1, 59999});
	fclose(file);
	assert_int_equal(text_read(text, &lines), 0);
	assert_int_equal(lines.pid, 7);
	assert_true(lines.whole && lines.taken_ms == 1700000000000 && lines.traced_ms == 60000);
	assert_int_equal(block_lines_at(&lines, 0x1008)->age, 59999);
	assert_int_equal(block_lines_at(&lines, 0x1008)->stack, 1);
	assert_int_equal(block_lines_at(&lines, 0x200f)->stack, 0);
	assert_null(block_lines_at(&lines, 0x2010));
	assert_null(block_lines_at(&lines, 0xfff));
	assert_int_equal(lines.stacks[1].parent, 0);
	assert_int_equal(lines.stacks[0].parent, BLOCK_LINES_NONE);
	assert_string_equal(lines.frames[1].function, "f g");
	assert_string_equal(lines.names[lines.frames[1].line], "b?.py:4");
	block_lines_free(&lines);
	free(text);
}

static void the_first_format_is_read(void **state)
{
	struct block_lines lines;

	(void)state;
	assert_int_equal(text_read("tracer blocks 1 7\nl 0 3 a.py\nb 1000 10 0\n", &lines), 0);
	assert_int_equal(block_lines_find(&lines, 0x1001), 0);
	assert_int_equal(block_lines_at(&lines, 0x1001)->stack, BLOCK_LINES_NONE);
	assert_true(!lines.taken_ms && !lines.whole);
	block_lines_free(&lines);
}

static void the_second_format_is_read(void **state)
{
	struct block_lines lines;

	(void)state;
	assert_int_equal(text_read("tracer blocks 2 7\nl 0 3 a.py\nf 0 0 g\ns 0 0 0\n"
				   "b 1000 10 0 0\n",
				   &lines),
			 0);
	assert_int_equal(block_lines_at(&lines, 0x1001)->stack, 0);
	assert_int_equal(block_lines_at(&lines, 0x1001)->age, 0);
	assert_int_equal(lines.taken_ms, 0);
	block_lines_free(&lines);
}

#define HEAD "tracer blocks 2 7\nl 0 3 a.py\nf 0 0 g\n"

static void others_are_refused(void **state)
{
	static const char *const wrong[] = {
		"tracer blocks 4 7\n",
		"tracer blocks 3 7\n",
		"tracer blocks 2 7\nt 1 1 1\n",
		"tracer blocks 3 7\nt 0 1 1\n",
		"tracer blocks 3 7\nt 1 1 2\n",
		"tracer blocks 3 7\nt 1 1 1\nt 1 1 1\n",
		"tracer blocks 3 7\nt 18446744073709551615 1 1\n",
		"tracer blocks 3 7\nt 1 1 1\nl 0 3 a.py\nf 0 0 g\ns 0 0 0\nb 1000 10 0 0\n",
		"tracer blocks 3 7\nt 1 1 1\nl 0 3 a.py\nf 0 0 g\ns 0 0 0\n"
		"b 1000 10 0 0 4294967295\n",
		HEAD "f 0 0 h\n",
		HEAD "f 1 1 h\n",
		HEAD "s 1 1 0\n",
		HEAD "s 0 1 0\n",
		HEAD "s 0 0 1\n",
		HEAD "s 0 0 0\nb 1000 10 0\n",
		HEAD "b 1000 10 0 0\n",
		"tracer blocks 1 7\nl 0 3 a.py\nb 1000 10 0 0\n",
	};
	struct block_lines lines;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(text_read(wrong[i], &lines), -EINVAL);
}

static void deep_stacks_are_refused(void **state)
{
	struct block_lines lines;
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	(void)state;
	fputs(HEAD, file);
	for (uint32_t i = 0; i < BLOCK_STACK_DEPTH; i++)
		block_lines_stack(file, i, i ? i - 1 : 0, 0);
	fflush(file);
	assert_int_equal(text_read(text, &lines), 0);
	block_lines_free(&lines);
	block_lines_stack(file, BLOCK_STACK_DEPTH, BLOCK_STACK_DEPTH - 1, 0);
	fclose(file);
	assert_int_equal(text_read(text, &lines), -EINVAL);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stacks_are_read),
		cmocka_unit_test(the_first_format_is_read),
		cmocka_unit_test(the_second_format_is_read),
		cmocka_unit_test(others_are_refused),
		cmocka_unit_test(deep_stacks_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
