/* SPDX-License-Identifier: Apache-2.0 */
/* Heap walks in real interpreters. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "heap_seen.h"
#include "pythons.h"
#include "runtime/cpython/heap.h"
#include "util/error.h"

#define SCRIPT "tests/unit/data/python/heap.py"

/*
 * Walks the heap of such an interpreter. needs_symbols: an interpreter without symbols may instead
 * report -ENOTSUP.
 */
static void check_heap_of(char *path, char *argument, char *environment, int needs_symbols)
{
	struct heap_walk walk;
	struct python_runtime runtime;
	struct python_child child = {0};
	struct seen seen = {0};
	int64_t figures[3];
	int err;

	if (access(SCRIPT, R_OK)) {
		printf("%s is not to be found from here\n", SCRIPT);
		skip();
	}
	assert_int_equal(
		python_start(&child, (char *[]){path, SCRIPT, argument, NULL}, environment), 0);
	assert_int_equal(fread(figures, sizeof(figures), 1, child.out), 1);
	python_wait_paused(&child);
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
	seen.known = (uint64_t)figures[1];
	err = heap_read(&runtime, see, &seen, &walk);
	if (err == -ENOTSUP && needs_symbols && !elf_file_has_symtab(runtime.file)) {
		printf("%s\n", error_reason(err));
	} else {
		assert_int_equal(err, 0);
		assert_int_equal(walk.pools_unreadable, 0);
		assert_int_equal(walk.blocks + walk.raw_blocks, figures[0]);
		assert_true(walk.blocks > 20000 && walk.raw_blocks > 10000);
		assert_true(walk.arenas > 0 && walk.pools > walk.arenas);
		assert_int_equal(seen.blocks, walk.blocks);
		assert_int_equal(seen.bytes, walk.bytes);
		assert_int_equal(seen.known_bytes, (figures[2] + 15) / 16 * 16);
		assert_int_equal(seen.known_size, 100);

		seen = (struct seen){.stop_after = 1000};
		assert_int_equal(heap_read(&runtime, see, &seen, &walk), 0);
		assert_int_equal(seen.blocks, 1000);
	}
	python_runtime_close(&runtime);
	python_stop(&child);
}

static void check_heap(unsigned int minor, char *argument)
{
	char path[PATH_MAX];

	if (!python_path(minor, path))
		skip();
	check_heap_of(path, argument, NULL, minor == 8);
}

static void check_version(unsigned int minor)
{
	check_heap(minor, NULL);
}

VERSION_TESTS(check_version)

/* Each interpreter has a heap of its own. */
static void test_subinterpreter_312(void **state)
{
	(void)state;
	check_heap(12, "subinterpreter");
}

static void test_subinterpreter_313(void **state)
{
	(void)state;
	check_heap(13, "subinterpreter");
}

/* Debian's is stripped: only the code of _Py_GetAllocatedBlocks() shows where its heap is. */
static void test_distribution_311(void **state)
{
	char *path = "/usr/bin/python3.11";

	(void)state;
	if (access(path, X_OK)) {
		printf("no %s on this machine\n", path);
		skip();
	}
	check_heap_of(path, NULL, NULL, 0);
}

static void start_idle(char *path, char *environment, struct python_child *child,
		       struct python_runtime *runtime)
{
	char *program = "import os, signal\nos.write(1, b'\\n')\nsignal.pause()";

	assert_int_equal(python_start(child, (char *[]){path, "-c", program, NULL}, environment),
			 0);
	assert_int_equal(getc(child->out), '\n');
	assert_int_equal(python_runtime_find(child->pid, NULL, runtime), 0);
}

/*
 * Makes a copy of the interpreter's library without symbols in directory. Returns 1; 0: there is no
 * such library.
 */
static int strip_library(char *path, const char *directory, char *copy, size_t size)
{
	struct python_child child = {0};
	struct python_runtime runtime;
	char command[512];
	int made;

	start_idle(path, NULL, &child, &runtime);
	snprintf(copy, size, "%s/%s", directory, elf_file_soname(runtime.file));
	snprintf(command, sizeof(command), "strip -o '%s' /proc/%d/fd/%d", copy, (int)getpid(),
		 elf_file_fd(runtime.file));
	made = !runtime.static_exe && system(command) == 0;
	python_runtime_close(&runtime);
	python_stop(&child);
	return made;
}

/* The library without its symbols, which LD_LIBRARY_PATH puts before the other one. */
static void check_stripped(unsigned int minor, int supported)
{
	char path[PATH_MAX], directory[] = "/tmp/test_heap.XXXXXX", copy[128], environment[128];
	struct python_child child = {0};
	struct python_runtime runtime;
	struct heap_walk walk;
	int made;

	if (!python_path(minor, path))
		skip();
	assert_non_null(mkdtemp(directory));
	snprintf(environment, sizeof(environment), "LD_LIBRARY_PATH=%s", directory);
	made = strip_library(path, directory, copy, sizeof(copy));
	if (made) {
		start_idle(path, environment, &child, &runtime);
		assert_false(elf_file_has_symtab(runtime.file));
		assert_int_equal(heap_read(&runtime, NULL, NULL, &walk), supported ? 0 : -ENOTSUP);
		if (!supported)
			assert_non_null(
				strstr(error_reason(-ENOTSUP), "install its debug symbols"));
		python_runtime_close(&runtime);
		python_stop(&child);
	}
	if (made && supported)
		check_heap_of(path, NULL, environment, 0);
	unlink(copy);
	rmdir(directory);
	if (!made) {
		printf("no library of python3.%u, or no strip, on this machine\n", minor);
		skip();
	}
}

static void test_stripped_38(void **state)
{
	(void)state;
	check_stripped(8, 0);
}

static void test_stripped_310(void **state)
{
	(void)state;
	check_stripped(10, 1);
}

/* A walk ends although the heap changes meanwhile, and finds nearly every pool. */
static void test_changing(void **state)
{
	char *program = "import os\nos.write(1, b'\\n')\nkept = [None] * 50000\nn = 0\n"
			"while True:\n kept[n % 50000] = [n, str(n), bytes(n % 500)]; n += 7919";
	struct heap_walk walk;
	struct python_runtime runtime;
	struct python_child child = {0};
	char path[PATH_MAX];

	(void)state;
	if (!python_path(13, path))
		skip();
	assert_int_equal(python_start(&child, (char *[]){path, "-c", program, NULL}, NULL), 0);
	assert_int_equal(getc(child.out), '\n');
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(heap_read(&runtime, NULL, NULL, &walk), 0);
		assert_true(walk.blocks > 0);
		assert_true(walk.pools_unreadable < walk.pools);
	}
	python_runtime_close(&runtime);
	python_stop(&child);
}

static void test_not_pymalloc(void **state)
{
	struct heap_walk walk;
	struct python_runtime runtime;
	struct python_child child = {0};
	char path[PATH_MAX];

	(void)state;
	if (!python_path(12, path))
		skip();
	start_idle(path, "PYTHONMALLOC=malloc", &child, &runtime);
	assert_int_equal(heap_read(&runtime, NULL, NULL, &walk), -ENODATA);
	assert_non_null(strstr(error_reason(-ENODATA), "PYTHONMALLOC"));
	python_runtime_close(&runtime);
	python_stop(&child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_38),
		cmocka_unit_test(test_39),
		cmocka_unit_test(test_310),
		cmocka_unit_test(test_311),
		cmocka_unit_test(test_312),
		cmocka_unit_test(test_313),
		cmocka_unit_test(test_314),
		cmocka_unit_test(test_315),
		cmocka_unit_test(test_distribution_311),
		cmocka_unit_test(test_stripped_38),
		cmocka_unit_test(test_stripped_310),
		cmocka_unit_test(test_subinterpreter_312),
		cmocka_unit_test(test_subinterpreter_313),
		cmocka_unit_test(test_changing),
		cmocka_unit_test(test_not_pymalloc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
