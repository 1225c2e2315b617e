/* SPDX-License-Identifier: Apache-2.0 */
/* Probe plans for Python's allocators. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "assembly.h"
#include "object/elf/elf_file.h"
#include "probe/python/plan.h"
#include "python_plans.h"

#define PUBLIC                                                                                     \
	"PyMem_RawMalloc PyMem_RawCalloc PyMem_RawRealloc PyMem_RawFree PyMem_Malloc "             \
	"PyMem_Calloc PyMem_Realloc PyMem_Free PyObject_Malloc PyObject_Calloc "                   \
	"PyObject_Realloc PyObject_Free PyTraceMalloc_Track PyTraceMalloc_Untrack "                \
	"Py_FinalizeEx Py_Exit _Py_NewReference _Py_NewReferenceNoTotal "
#define RAW "_PyMem_RawMalloc _PyMem_RawCalloc _PyMem_RawRealloc _PyMem_RawFree "
#define OBJ "_PyObject_Malloc _PyObject_Calloc _PyObject_Realloc _PyObject_Free "
#define HOOKS                                                                                      \
	"_PyMem_DebugRawMalloc _PyMem_DebugRawCalloc _PyMem_DebugRawRealloc _PyMem_DebugRawFree "  \
	"_PyMem_DebugMalloc _PyMem_DebugCalloc _PyMem_DebugRealloc _PyMem_DebugFree "

enum how { DEFAULT, PUBLIC_ONLY, IN_CENSUS };

/*
 * Assembles a library of functions "test; je" with those names (static if they begin with an
 * underscore). "ALIAS=NAME" gives a function a second name. Returns its plan, or -errno.
 */
static int plan_names(const char *names, enum how how, struct plan *plan)
{
	char *copy = strdup(names), *source = NULL, *save = NULL;
	struct elf_file *file;
	size_t bytes;
	FILE *text = open_memstream(&source, &bytes);
	int err;

	assert_non_null(copy);
	assert_non_null(text);
	fprintf(text, ".text\n");
	for (char *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
		char *original = strchr(name, '=');

		if (original)
			*original++ = '\0';
		fprintf(text, ".type %s, @function\n", name);
		if (*name != '_')
			fprintf(text, ".globl %s\n", name);
		if (original)
			fprintf(text, ".set %s, %s\n", name, original);
		else
			fprintf(text, "%s: test %%rdi, %%rdi\nje 1f\nnop\n1: ret\n.size %s, .-%s\n",
				name, name, name);
	}
	assert_int_equal(fclose(text), 0);
	file = assembly_open("", "%s", source);
	free(source);
	free(copy);
	struct plan_opts opts = {.public_only = how == PUBLIC_ONLY,
				 .mode = how == IN_CENSUS ? EVENT_MODE_CENSUS : EVENT_MODE_EXACT};
	err = plan_python(file, &opts, plan);
	elf_file_close(file);
	return err;
}

static const char *why_missing(const struct plan *plan, const char *symbol)
{
	for (size_t i = 0; i < plan->missing_count; i++)
		if (strcmp(plan->missing[i].symbol, symbol) == 0)
			return plan->missing[i].why;
	return "not missing";
}

static void expect(const struct plan *plan, const char *symbol, uint64_t cookie, int with_return)
{
	const struct plan_site *site = find(plan, symbol);

	if (!site)
		fail_msg("no site in %s", symbol);
	assert_int_equal(site->cookie, cookie);
	assert_int_equal(site->op, cookie & 0xff);
	assert_int_equal(site->with_return, with_return);
}

#define NONE ABI_REG_COUNT

static void test_implementations(void **state)
{
	(void)state;
	struct plan plan;

	assert_int_equal(plan_names(PUBLIC RAW OBJ, DEFAULT, &plan), 0);
	assert_string_equal(
		plan.level,
		"raw, mem, obj: implementations (_PyMem_Raw*, _PyObject_*); 2 take an object into "
		"use");
	assert_int_equal(functions_of(&plan), 4 + 4 + 6);
	assert_int_equal(missing_of(&plan), 1);
	assert_string_equal(why_missing(&plan, "_PyMem_Debug*"),
			    "found neither by symbols nor by the code of PyMem_SetupDebugHooks()");
	assert_false(plan.complete);
	assert_true(plan.reuse_unseen); /* nothing calls _Py_NewReference */
	assert_true(plan.ends_unseen);
	assert_string_equal(why_missing(&plan, "PyObject_Malloc"),
			    "its code does not lead to a probed site");
	expect(&plan, "_PyMem_RawMalloc",
	       ABI_COOKIE(ABI_OP_MALLOC, EVENT_API_RAW, ABI_REG_SI, NONE, NONE), 1);
	expect(&plan, "_PyMem_RawFree",
	       ABI_COOKIE(ABI_OP_FREE, EVENT_API_RAW, ABI_REG_SI, NONE, NONE), 0);
	expect(&plan, "_PyObject_Calloc",
	       ABI_COOKIE(ABI_OP_CALLOC, EVENT_API_OBJ, ABI_REG_SI, ABI_REG_DX, NONE), 1);
	expect(&plan, "_PyObject_Realloc",
	       ABI_COOKIE(ABI_OP_REALLOC, EVENT_API_OBJ, ABI_REG_SI, ABI_REG_DX, NONE), 1);
	expect(&plan, "PyTraceMalloc_Track",
	       ABI_COOKIE(ABI_OP_TRACK, EVENT_API_TRACK, ABI_REG_DI, ABI_REG_SI, ABI_REG_DX), 0);
	expect(&plan, "PyTraceMalloc_Untrack",
	       ABI_COOKIE(ABI_OP_UNTRACK, EVENT_API_TRACK, ABI_REG_DI, ABI_REG_SI, NONE), 0);
	expect(&plan, "_Py_NewReference",
	       ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, ABI_REG_DI, NONE, NONE), 0);
	expect(&plan, "Py_FinalizeEx", ABI_COOKIE(ABI_OP_FINALIZE, EVENT_API_RAW, NONE, NONE, NONE),
	       0);
	plan_free(&plan);
	assert_null(plan.sites);
	plan_free(NULL);
}

/*
 * The debugging hooks are probed along with the implementations. Along with the public functions
 * they would count twice.
 */
static void test_hooks(void **state)
{
	(void)state;
	struct plan plan;

	assert_int_equal(plan_names(PUBLIC RAW OBJ HOOKS, DEFAULT, &plan), 0);
	assert_int_equal(functions_of(&plan), 4 + 4 + 8 + 6);
	assert_int_equal(missing_of(&plan), 0);
	assert_true(plan.complete);
	expect(&plan, "_PyMem_DebugRawFree",
	       ABI_COOKIE(ABI_OP_FREE, EVENT_API_RAW, ABI_REG_SI, NONE, NONE) |
		       ABI_COOKIE_ADDEND(16),
	       0);
	expect(&plan, "_PyMem_DebugCalloc",
	       ABI_COOKIE(ABI_OP_CALLOC, EVENT_API_OBJ, ABI_REG_SI, ABI_REG_DX, NONE) |
		       ABI_COOKIE_ADDEND(16),
	       1);
	expect(&plan, "_PyObject_Malloc",
	       ABI_COOKIE(ABI_OP_MALLOC, EVENT_API_OBJ, ABI_REG_SI, NONE, NONE), 1);
	plan_free(&plan);
	assert_int_equal(plan_names(PUBLIC HOOKS, DEFAULT, &plan), 0);
	assert_null(find(&plan, "_PyMem_DebugMalloc"));
	plan_free(&plan);
}

static void test_public(void **state)
{
	(void)state;
	struct plan plan;

	assert_int_equal(plan_names(PUBLIC RAW OBJ, PUBLIC_ONLY, &plan), 0);
	assert_string_equal(plan.level,
			    "raw, mem, obj: public functions (as asked; inlined copies are not "
			    "seen); 2 take an object into use");
	assert_int_equal(functions_of(&plan), 3 * 4 + 6);
	assert_int_equal(missing_of(&plan), 0);
	assert_false(plan.complete);
	expect(&plan, "PyMem_RawCalloc",
	       ABI_COOKIE(ABI_OP_CALLOC, EVENT_API_RAW, ABI_REG_DI, ABI_REG_SI, NONE), 1);
	expect(&plan, "PyMem_Malloc",
	       ABI_COOKIE(ABI_OP_MALLOC, EVENT_API_MEM, ABI_REG_DI, NONE, NONE), 1);
	expect(&plan, "PyObject_Free",
	       ABI_COOKIE(ABI_OP_FREE, EVENT_API_OBJ, ABI_REG_DI, NONE, NONE), 0);
	plan_free(&plan);

	assert_int_equal(plan_names(PUBLIC, DEFAULT, &plan), 0);
	assert_string_equal(
		plan.level,
		"raw, mem, obj: public functions (no usable symbols of the implementations; "
		"inlined copies are not seen); 2 take an object into use");
	assert_int_equal(functions_of(&plan), 3 * 4 + 6);
	assert_int_equal(missing_of(&plan), 0);
	plan_free(&plan);
}

/*
 * If the code cannot be analysed, the object allocator may free large blocks by itself. All its
 * frees are probed.
 */
static void test_census_refused(void **state)
{
	(void)state;
	struct plan plan;

	assert_int_equal(plan_names(PUBLIC RAW OBJ, IN_CENSUS, &plan), 0);
	assert_int_equal(plan.mode, EVENT_MODE_EXACT);
	assert_string_equal(plan.mode_why,
			    "the frees of large blocks cannot be told from others in this file");
	expect(&plan, "_PyObject_Free",
	       ABI_COOKIE(ABI_OP_FREE, EVENT_API_OBJ, ABI_REG_SI, NONE, NONE), 0);
	plan_free(&plan);
}

/* A domain with three of its four implementations is not probed at those three. */
static void test_mixed_levels(void **state)
{
	(void)state;
	struct plan plan;

	assert_int_equal(plan_names(PUBLIC RAW
				    "_PyObject_Malloc _PyObject_Calloc _PyObject_Realloc",
				    DEFAULT, &plan),
			 0);
	assert_string_equal(
		plan.level,
		"raw: implementations (_PyMem_Raw*); mem, obj: public functions (no usable symbols "
		"of the implementations; inlined copies are not seen); 2 take an object into use");
	assert_int_equal(functions_of(&plan), 4 + 8 + 6);
	assert_int_equal(missing_of(&plan), 1);
	assert_false(plan.complete);
	assert_string_equal(why_missing(&plan, "_PyObject_Free"), "no such symbol");
	assert_non_null(find(&plan, "_PyMem_RawFree"));
	assert_null(find(&plan, "PyMem_RawFree"));
	assert_null(find(&plan, "_PyObject_Malloc"));
	assert_non_null(find(&plan, "PyMem_Malloc"));
	plan_free(&plan);
}

static void test_clones(void **state)
{
	(void)state;
	static const struct {
		const char *names, *why;
	} clones[] = {
		{"_PyObject_Free.constprop.0",
		 "only a clone with other arguments is there (.constprop)"},
		{"_PyObject_Free.part.0 _PyObject_Free.cold",
		 "only a part split off it is there (.part)"},
		{"_PyObject_Free.isra.3", "only a clone with other arguments is there (.isra)"},
		{"_PyObject_Free.lto_priv.0 _PyObject_Free.lto_priv.1",
		 "several functions have this name (.lto_priv)"},
	};
	struct plan plan;

	/* a function that link-time optimisation only renamed */
	assert_int_equal(plan_names(PUBLIC RAW
				    "_PyObject_Malloc _PyObject_Calloc _PyObject_Realloc "
				    "_PyObject_Free.lto_priv.2 _PyObject_Free.part.0",
				    DEFAULT, &plan),
			 0);
	assert_string_equal(
		plan.level,
		"raw, mem, obj: implementations (_PyMem_Raw*, _PyObject_*); 2 take an object into "
		"use");
	assert_non_null(find(&plan, "_PyObject_Free"));
	plan_free(&plan);

	for (size_t i = 0; i < sizeof(clones) / sizeof(clones[0]); i++) {
		char names[1024];

		snprintf(names, sizeof(names), "%s %s",
			 PUBLIC RAW "_PyObject_Malloc _PyObject_Calloc _PyObject_Realloc",
			 clones[i].names);
		assert_int_equal(plan_names(names, DEFAULT, &plan), 0);
		assert_string_equal(why_missing(&plan, "_PyObject_Free"), clones[i].why);
		assert_null(find(&plan, "_PyObject_Free"));
		assert_non_null(find(&plan, "PyObject_Free"));
		plan_free(&plan);
	}
}

/* Two names of one function give one site. If they have two meanings, only the first is served. */
static void test_aliases(void **state)
{
	(void)state;
	struct plan plan;

	assert_int_equal(plan_names("PyMem_RawMalloc PyObject_Malloc PyObject_Free "
				    "PyMem_Malloc=PyObject_Malloc PyMem_Free=PyObject_Malloc",
				    DEFAULT, &plan),
			 0);
	assert_int_equal(plan.count, 3);
	assert_non_null(find(&plan, "PyObject_Malloc"));
	assert_null(find(&plan, "PyMem_Malloc"));
	assert_string_equal(why_missing(&plan, "PyMem_Malloc"), "not missing");
	assert_string_equal(why_missing(&plan, "PyMem_Free"),
			    "it shares its code with a function of another meaning");
	assert_string_equal(why_missing(&plan, "Py_FinalizeEx"), "no such symbol");
	plan_free(&plan);
}

static void test_no_python(void **state)
{
	(void)state;
	struct plan plan = {.count = 77};

	assert_int_equal(plan_names("main", DEFAULT, &plan), -ENOENT);
	assert_int_equal(plan_names("Py_FinalizeEx PyTraceMalloc_Track", DEFAULT, &plan), -ENOENT);
	assert_int_equal(plan.count, 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_implementations), cmocka_unit_test(test_hooks),
		cmocka_unit_test(test_public),          cmocka_unit_test(test_census_refused),
		cmocka_unit_test(test_mixed_levels),    cmocka_unit_test(test_clones),
		cmocka_unit_test(test_aliases),         cmocka_unit_test(test_no_python),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
