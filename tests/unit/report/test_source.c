/* SPDX-License-Identifier: Apache-2.0 */
/* Source lines from several roots, none of which can be trusted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/source.h"

struct roots {
	char paths[2][64];
	struct source_roots roots;
};

static void file_write(int root, const char *name, const char *text)
{
	int fd = openat(root, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int setup(void **state)
{
	struct roots *roots = calloc(1, sizeof(*roots));

	for (size_t i = 0; i < 2; i++) {
		snprintf(roots->paths[i], sizeof(roots->paths[i]), "/tmp/tracer-source-XXXXXX");
		assert_non_null(mkdtemp(roots->paths[i]));
		roots->roots.fds[i] = open(roots->paths[i], O_PATH | O_DIRECTORY);
		assert_true(roots->roots.fds[i] >= 0);
	}
	roots->roots.count = 2;
	*state = roots;
	return 0;
}

static int teardown(void **state)
{
	static const char *const names[] = {"a.py",   "b.py",    "link.py",
					    "out.py", "fifo.py", "secret"};
	struct roots *roots = *state;

	for (size_t i = 0; i < 2; i++) {
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
			unlinkat(roots->roots.fds[i], names[k], 0);
		close(roots->roots.fds[i]);
		rmdir(roots->paths[i]);
	}
	free(roots);
	return 0;
}

/* Compares what is printed for a line, and at the end (source_missing_print()). */
static void expect(const struct source_roots *roots, const char *name, uint32_t line,
		   const char *printed, const char *missing)
{
	struct source *source;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	assert_int_equal(source_new(&source, roots), 0);
	source_print(source, out, "", name, line);
	fflush(out);
	assert_string_equal(text, printed);
	source_missing_print(source, out);
	fclose(out);
	if (missing)
		assert_non_null(strstr(text + strlen(printed), missing));
	else
		assert_int_equal(size, strlen(printed));
	source_free(source);
	free(text);
}

static void test_roots(void **state)
{
	const struct source_roots *roots = &((struct roots *)*state)->roots;

	file_write(roots->fds[0], "a.py", "one\n  two\nthree\n");
	file_write(roots->fds[1], "a.py", "one\ntwo  \nother\n");
	file_write(roots->fds[1], "b.py", "only\n");
	expect(roots, "/a.py", 1, "one\n", NULL);
	expect(roots, "/a.py", 2, "two\n", NULL);
	expect(roots, "/a.py", 3, "", "1 not shown, because they differ between containers");
	expect(roots, "/a.py", 9, "", NULL);
	expect(roots, "/b.py", 1, "only\n", NULL);
	expect(roots, "/none.py", 1, "", "(/none.py: No such file");
	expect(roots, "a.py", 1, "", "(a.py: No such file");
	expect(roots, "<string>", 1, "", NULL);
}

static void test_hostile(void **state)
{
	const struct roots *two = *state;
	struct source_roots roots = two->roots;
	char path[96];

	roots.count = 1;
	file_write(roots.fds[1], "secret", "secret\n");
	snprintf(path, sizeof(path), "%s/secret", two->paths[1]);
	assert_int_equal(symlinkat(path, roots.fds[0], "out.py"), 0);
	expect(&roots, "/out.py", 1, "", "(/out.py: No such file");
	snprintf(path, sizeof(path), "/../..%s/secret", two->paths[1]);
	expect(&roots, path, 1, "", "No such file");
	expect(NULL, path, 1, "secret\n", NULL);
	file_write(roots.fds[0], "a.py", "one\n");
	assert_int_equal(symlinkat("/a.py", roots.fds[0], "link.py"), 0);
	expect(&roots, "/link.py", 1, "one\n", NULL);
	assert_int_equal(mkfifoat(roots.fds[0], "fifo.py", 0600), 0);
	expect(&roots, "/fifo.py", 1, "", "(/fifo.py: not a regular file)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_roots, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
