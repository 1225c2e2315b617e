/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real heaps: the blocks show the objects that a program reports it made. Each count is the
 * difference between a run that makes N objects of each type and a run that makes none. It
 * therefore does not depend on the interpreter's own objects.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pythons.h"
#include "runtime/heap/heap_types.h"
#include "util/error.h"

#define SCRIPT  "tests/unit/data/python/heap_types.py"
#define HOSTILE "tests/unit/data/python/heap_hostile.py"
#define N       20000

static const struct heap_type *type_named(const struct heap_types *types, const char *name)
{
	for (size_t i = 0; i < types->count; i++)
		if (!strcmp(types->types[i].name, name))
			return &types->types[i];
	return NULL;
}

static int64_t count_of(const struct heap_types *types, const char *name)
{
	const struct heap_type *type = type_named(types, name);

	return type ? (int64_t)type->sum.blocks : 0;
}

static void sum_plus(struct heap_sum *sum, const struct heap_sum *more)
{
	sum->blocks += more->blocks;
	sum->bytes += more->bytes;
}

/* What must hold for every walk. */
static void check_sums(const struct heap_types *types, int changing)
{
	const struct heap_walk *walk = &types->walk;
	struct heap_sum objects = {0}, classes = {0};

	for (size_t i = 0; i < types->count; i++) {
		assert_true(types->types[i].sum.blocks > 0);
		assert_true(changing || types->types[i].name[0]);
		assert_true(!i || types->types[i].sum.bytes <= types->types[i - 1].sum.bytes);
		sum_plus(&objects, &types->types[i].sum);
	}
	assert_memory_equal(&objects, &types->objects, sizeof(objects));
	for (size_t i = 0; i < types->class_count; i++) {
		const struct heap_class *class = &types->classes[i];

		assert_true(!i || class->block_bytes > class[-1].block_bytes);
		assert_int_equal(class->sum.bytes, class->sum.blocks * class->block_bytes);
		sum_plus(&classes, &class->sum);
	}
	assert_int_equal(classes.blocks, walk->blocks);
	assert_int_equal(classes.bytes, walk->bytes);
	assert_int_equal(types->objects.blocks + types->dead.blocks + types->others.blocks,
			 walk->blocks);
	assert_int_equal(types->objects.bytes + types->dead.bytes + types->others.bytes,
			 walk->bytes);
}

/* Walks the heap of a run that made count objects of each type. Returns 0 or -ENOTSUP. */
static int run(char *path, char *count, int may_fail, struct heap_types *types)
{
	struct python_child child = {0};
	struct python_runtime runtime;
	int64_t blocks;
	int err;

	assert_int_equal(
		python_start(&child, (char *[]){path, SCRIPT, count, NULL}, "PYTHONHASHSEED=0"), 0);
	assert_int_equal(fread(&blocks, sizeof(blocks), 1, child.out), 1);
	python_wait_paused(&child);
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
	err = heap_types_read(&runtime, types);
	if (err == -ENOTSUP && may_fail && !elf_file_has_symtab(runtime.file)) {
		printf("%s\n", error_reason(err));
	} else {
		assert_int_equal(err, 0);
		assert_int_equal(types->walk.pools_unreadable, 0);
		assert_int_equal(types->walk.blocks + types->walk.raw_blocks, blocks);
		check_sums(types, 0);
	}
	python_runtime_close(&runtime);
	python_stop(&child);
	return err;
}

static int64_t growth(const struct heap_types *none, const struct heap_types *many,
		      const char *name)
{
	return count_of(many, name) - count_of(none, name);
}

static void check_near(const char *name, int64_t count, int64_t expected)
{
	if (count < expected - 16 || count > expected + 16)
		fail_msg("%s: %lld, not %lld", name, (long long)count, (long long)expected);
}

static void check(char *path, unsigned int minor)
{
	static const char *const common[] = {"tuple", "set",   "float",  "generator",
					     "list",  "bytes", "complex"};
	struct heap_types none, many;

	if (access(SCRIPT, R_OK)) {
		printf("%s is not to be found from here\n", SCRIPT);
		skip();
	}
	if (run(path, "0", minor == 8, &none))
		skip();
	assert_int_equal(run(path, "20000", minor == 8, &many), 0);
	assert_null(type_named(&none, "Plain"));
	assert_int_equal(count_of(&many, "Plain"), 2 * N);
	assert_int_equal(count_of(&many, "Slotted"), N);
	assert_int_equal(count_of(&many, "Empty"), N);
	assert_int_equal(count_of(&many, "Weak"), N);
	assert_int_equal(count_of(&many, "One"), N / 2);
	assert_int_equal(count_of(&many, "Child"), N);
	assert_int_equal(count_of(&many, "Text"), N);
	assert_null(type_named(&many, "Meta")); /* types are too large for pymalloc */
	for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
		check_near(common[i], growth(&none, &many, common[i]), N);
	/* The range's numbers are freed, except those that a list's overallocation still keeps. */
	check_near("int", growth(&none, &many, "int"), 0);
	/*
	 * Blocks kept by free lists, some of which are in use in the second run. Memory that lists
	 * have left behind is not included.
	 */
	assert_true(none.dead.blocks > 0 && none.dead.blocks < 1000);
	assert_true(many.dead.blocks <= none.dead.blocks + 16);
	/*
	 * dicts and instance dicts: all instances have one up to 3.10; later only those whose dict
	 * was requested.
	 */
	check_near("dict", growth(&none, &many, "dict"), minor <= 10 ? 3 * N : 2 * N);
	assert_true(many.others.blocks - none.others.blocks >
		    2 * N); /* the keys of dicts, the items of lists */
	heap_types_free(&none);
	heap_types_free(&many);
}

static void check_version(unsigned int minor)
{
	char path[PATH_MAX];

	if (!python_path(minor, path))
		skip();
	check(path, minor);
}

VERSION_TESTS(check_version)

/* Debian's is stripped and not position independent: None's address could be a count. */
static void test_distribution_311(void **state)
{
	char *path = "/usr/bin/python3.11";

	(void)state;
	if (access(path, X_OK)) {
		printf("no %s on this machine\n", path);
		skip();
	}
	check(path, 11);
}

/* The sums hold although the heap changes during the walk. */
static void test_changing(void **state)
{
	char *program =
		"import os\nos.write(1, b'\\n')\nkept = [None] * 50000\nn = 0\n"
		"while True:\n kept[n % 50000] = [n, str(n), type('T', (), {})()]; n += 7919";
	struct python_child child = {0};
	struct python_runtime runtime;
	char path[PATH_MAX];

	(void)state;
	if (!python_path(13, path))
		skip();
	assert_int_equal(python_start(&child, (char *[]){path, "-c", program, NULL}, NULL), 0);
	assert_int_equal(getc(child.out), '\n');
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
	for (int i = 0; i < 6; i++) {
		struct heap_types types;

		assert_int_equal(heap_types_read(&runtime, &types), 0);
		check_sums(&types, 1);
		heap_types_free(&types);
	}
	python_runtime_close(&runtime);
	python_stop(&child);
}

static void test_hostile(void **state)
{
	struct python_child child = {0};
	struct python_runtime runtime;
	struct heap_types types;
	char path[PATH_MAX], longest[HEAP_TYPE_NAME] = {0};

	(void)state;
	if (!python_path(12, path) || access(HOSTILE, R_OK))
		skip();
	assert_int_equal(python_start(&child, (char *[]){path, HOSTILE, NULL}, NULL), 0);
	if (getc(child.out) != 'r') {
		printf("no ctypes in %s\n", path);
		python_stop(&child);
		skip();
	}
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
	assert_int_equal(heap_types_read(&runtime, &types), 0);
	memset(longest, 'x', sizeof(longest) - 1);
	assert_int_equal(count_of(&types, ""), 1000);
	assert_int_equal(count_of(&types, "\033[2J"), 1000);
	assert_int_equal(count_of(&types, longest), 1000);
	assert_null(type_named(&types, "Loop"));
	assert_true(types.others.blocks > 1000);
	heap_types_free(&types);

	/* The process that was traced is gone. */
	kill(child.pid, SIGKILL);
	waitpid(child.pid, NULL, 0);
	assert_int_equal(heap_types_read(&runtime, &types), -ESRCH);
	python_runtime_close(&runtime);
	fclose(child.out);
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
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_changing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
