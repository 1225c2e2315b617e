/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of whole files: small libraries assembled here, and the interpreters that the machine
 * has.
 */
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

#include "abi/events.h"
#include "assembly.h"
#include "elf/elf_file.h"
#include "plan/plan.h"
#include "pythons.h"

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
 * Assembles a library of functions "test; je" of those names (static where they begin with an
 * underscore) and "ALIAS=NAME" for a second name of one. Returns its plan, or -errno.
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

static const struct plan_site *find(const struct plan *plan, const char *symbol)
{
	for (size_t i = 0; i < plan->count; i++)
		if (strcmp(plan->sites[i].symbol, symbol) == 0)
			return &plan->sites[i];
	return NULL;
}

/*
 * Sites of functions: where an interpreter shuts down, one for the first piece of its heap and not
 * those of the others.
 */
static size_t functions_of(const struct plan *plan)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->count; i++)
		count += plan->sites[i].op != ABI_OP_FINALIZE ||
			 find(plan, plan->sites[i].symbol) == &plan->sites[i];
	return count;
}

/* What is missing, but for exported functions that lead nowhere, as those of these libraries do. */
static size_t missing_of(const struct plan *plan)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->missing_count; i++)
		count += strcmp(plan->missing[i].why,
				"its code leads to no place that is probed") != 0;
	return count;
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
			    "neither symbols nor PyMem_SetupDebugHooks() tell where they are");
	assert_false(plan.complete);
	assert_true(plan.reuse_unseen); /* nothing calls _Py_NewReference */
	assert_true(plan.ends_unseen);
	assert_string_equal(why_missing(&plan, "PyObject_Malloc"),
			    "its code leads to no place that is probed");
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
 * The debugging hooks beside the implementations; beside the public functions they would count
 * twice.
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
 * Where the code cannot be looked through, the object allocator may free large blocks by itself:
 * all its frees are probed.
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

/* A domain with three of its four implementations is not served by three. */
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

	/* A function that link-time optimisation has but renamed */
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

/* Two names of one function are one site; of two meanings, only the first can be served. */
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

/* Is the plan sound, going by the bytes in the file? */
static void check_sites(const struct plan *plan, int fd, const char *path)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct plan_site *site = &plan->sites[i];
		uint8_t code[2];

		assert_int_equal(pread(fd, code, sizeof(code), (off_t)site->offset), sizeof(code));
		if (site->emulated &&
		    !(code[0] == 0x90 || (code[0] & 0xf8) == 0x50 || (code[0] & 0xf0) == 0x70 ||
		      code[0] == 0xe8 || code[0] == 0xe9 || code[0] == 0xeb ||
		      (code[0] == 0x0f && (code[1] & 0xf0) == 0x80) ||
		      (code[0] == 0x41 && (code[1] & 0xf8) == 0x50)))
			fail_msg("%s: %s: byte %02x at the site: %s", path, site->symbol, code[0],
				 site->instruction);
		for (size_t j = 0; j < i; j++)
			assert_int_not_equal(site->offset, plan->sites[j].offset);
	}
}

/* Opens path and plans it; -ENOEXEC, -ENOENT where it is no Python. */
static int plan_file(const char *path, struct plan *plan)
{
	struct elf_file *file;
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	err = elf_file_open(&file, fd, path, NULL);
	if (err) {
		close(fd);
		return err;
	}
	struct plan_opts opts = {0};
	err = plan_python(file, &opts, plan);
	if (!err)
		check_sites(plan, fd, path);
	elf_file_close(file);
	return err;
}

/*
 * In a build with symbols the implementations are all found, and none costs two traps (but for the
 * hooks).
 */
static void test_pyenv(void **state)
{
	(void)state;
	char path[PATH_MAX];
	int seen = 0, ends = 0;

	for (unsigned int minor = 8; minor <= 13; minor++) {
		struct plan plan;

		if (!libpython_path(minor, path))
			continue;
		assert_int_equal(plan_file(path, &plan), 0);
		assert_true(plan.complete);
		assert_false(plan.ends_unseen);
		/*
		 * Where the ends of requests are all recognised they are probed instead: cheaper.
		 */
		if (plan.object_code[0].bytes) {
			assert_memory_equal(plan.level, "raw, mem, obj: where requests end: ", 35);
			ends++;
		} else {
			assert_memory_equal(
				plan.level,
				"raw, mem, obj: implementations (_PyMem_Raw*, _PyObject_*); ", 59);
			assert_int_equal(functions_of(&plan) - plan.inlined_count +
						 missing_of(&plan),
					 minor == 8   ? 22
					 : minor < 12 ? 21
						      : 20);
		}
		/* Inline in 3.8's headers; the second function came with 3.12. */
		assert_int_equal(missing_of(&plan), minor == 8 ? 2 : minor < 12 ? 1 : 0);
		for (size_t j = 0; j < plan.missing_count; j++)
			assert_memory_equal(plan.missing[j].symbol, "_Py_NewReference", 16);
		for (size_t j = 0; j < plan.count; j++)
			if (!plan.sites[j].emulated &&
			    !strstr(plan.sites[j].symbol, "_PyMem_Debug") &&
			    plan.sites[j].op != ABI_OP_FINALIZE)
				fail_msg("%s: %s: %s", path, plan.sites[j].symbol,
					 plan.sites[j].why);
		plan_free(&plan);
		seen++;
	}
	if (!seen) {
		print_message("no pyenv with shared libraries\n");
		skip();
	}
	print_message("%d versions, %d of them probed where requests end\n", seen, ends);
}

/* Any other interpreter on PATH, stripped or not: every function of raw and obj has its site. */
static void test_path(void **state)
{
	(void)state;
	char *path = strdup(getenv("PATH") ? getenv("PATH") : ""), *save = NULL;
	int seen = 0;

	for (char *dir = strtok_r(path, ":", &save); dir; dir = strtok_r(NULL, ":", &save))
		for (int minor = 8; minor < 20; minor++) {
			char file[1024];
			struct plan plan;
			int sites = 0;

			snprintf(file, sizeof(file), "%s/python3.%d", dir, minor);
			if (plan_file(file, &plan))
				continue;
			for (size_t i = 0; i < plan.count; i++)
				sites += plan.sites[i].op <= ABI_OP_FREE &&
					 (plan.sites[i].cookie >> 8 & 0xff) != EVENT_API_MEM;
			assert_true(sites >= 8);
			plan_free(&plan);
			seen++;
		}
	free(path);
	if (!seen) {
		print_message("no interpreter with the allocators of its own on PATH\n");
		skip();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_implementations), cmocka_unit_test(test_hooks),
		cmocka_unit_test(test_public),          cmocka_unit_test(test_census_refused),
		cmocka_unit_test(test_mixed_levels),    cmocka_unit_test(test_clones),
		cmocka_unit_test(test_aliases),         cmocka_unit_test(test_no_python),
		cmocka_unit_test(test_pyenv),           cmocka_unit_test(test_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
