/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of one file, and files that only appear to be copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assembly.h"
#include "object/elf/elf_file.h"
#include "probe/process/plan_cache.h"

#define BUILD_ID "0123456789abcdef0123456789abcdef01234567"

#define SOURCE                                                                                     \
	".text\n.globl PyObject_Malloc, PyObject_Calloc, PyObject_Realloc, PyObject_Free\n"        \
	".type PyObject_Malloc, @function\n.type PyObject_Calloc, @function\n"                     \
	".type PyObject_Realloc, @function\n.type PyObject_Free, @function\n"                      \
	"PyObject_Malloc:\nPyObject_Calloc:\nPyObject_Realloc:\nPyObject_Free:\n%s\nret\n"         \
	".size PyObject_Malloc, .-PyObject_Malloc\n.section .note.GNU-stack\n"

/* A library whose functions begin with these instructions. The build id is always the same. */
static struct elf_file *library(const char *instructions)
{
	struct elf_file *file = assembly_open("-Wl,--build-id=0x" BUILD_ID, SOURCE, instructions);

	assert_string_equal(elf_file_build_id(file), BUILD_ID);
	return file;
}

static void expect(struct plan_cache *cache, struct elf_file *file, const struct plan_opts *opts,
		   size_t files)
{
	struct plan plan, fresh;

	assert_int_equal(plan_cache_python(cache, file, opts, &plan), 0);
	assert_int_equal(plan_cache_count(cache), files);
	assert_int_equal(plan_python(file, opts, &fresh), 0);
	assert_true(fresh.count > 0);
	assert_int_equal(plan.count, fresh.count);
	assert_int_equal(plan.missing_count, fresh.missing_count);
	assert_int_equal(plan.mode, fresh.mode);
	assert_string_equal(plan.level, fresh.level);
	for (size_t i = 0; i < plan.count; i++) {
		assert_string_equal(plan.sites[i].symbol, fresh.sites[i].symbol);
		assert_string_equal(plan.sites[i].instruction, fresh.sites[i].instruction);
		assert_int_equal(plan.sites[i].vaddr, fresh.sites[i].vaddr);
		assert_int_equal(plan.sites[i].cookie, fresh.sites[i].cookie);
	}
	/* The plan is the caller's own, but all plans of a file share their arrays. */
	struct plan second;
	assert_int_equal(plan_cache_python(cache, file, opts, &second), 0);
	assert_ptr_equal(second.sites, plan.sites);
	plan.mode_why[0] = 'x';
	plan_free(&plan);
	assert_int_equal(second.sites[0].vaddr, fresh.sites[0].vaddr);
	plan_free(&second);
	plan_free(&fresh);
}

static void test_cache(void **state)
{
	struct plan_opts opts = {.mode = EVENT_MODE_EXACT},
			 others = {.mode = EVENT_MODE_EXACT, .no_reuse = 1};
	struct elf_file *file = library("push %rbp\npop %rbp"),
			*copy = library("push %rbp\npop %rbp");
	struct elf_file *forged = library("nop\npush %rbp");
	struct plan_cache *cache;
	struct plan plan;

	(void)state;
	assert_int_equal(plan_cache_new(&cache), 0);
	expect(cache, file, &opts, 1);
	expect(cache, file, &opts, 1);
	expect(cache, copy, &opts, 1);
	elf_file_close(file); /* the cache no longer needs it */
	expect(cache, copy, &opts, 1);
	expect(cache, forged, &opts, 2); /* the same build id and the same number of bytes */
	expect(cache, copy, &others, 3);
	expect(cache, forged, &opts, 3);
	assert_int_equal(plan_cache_python(NULL, copy, &opts, &plan), 0);
	plan_free(&plan);
	elf_file_close(copy);
	elf_file_close(forged);
	plan_cache_free(cache);
	plan_cache_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cache),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
