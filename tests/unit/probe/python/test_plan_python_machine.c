/* SPDX-License-Identifier: Apache-2.0 */
/* Probe plans for the interpreters of this machine. */
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
#include "object/elf/elf_file.h"
#include "probe/python/plan.h"
#include "probe/python/plan_slots.h"
#include "python_plans.h"
#include "pythons.h"

/* Checks the plan against the bytes in the file. */
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

/* Opens path and plans it. -ENOEXEC or -ENOENT if it is not Python. */
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
 * In a build with symbols all implementations are found, and no site costs two traps, except those
 * of the hooks.
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
		 * If the ends of requests are all recognised, they are probed instead, which is
		 * cheaper.
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

/* The slots hold the implementations, which have symbols here. */
static void test_slots(void **state)
{
	static const char *const domains[] = {"PyMem_Raw", "PyMem_", "PyObject_"};
	static const char *const wanted[] = {"_PyMem_Raw", "_PyObject_", "_PyObject_"};
	char path[PATH_MAX];
	int seen = 0;

	(void)state;
	for (unsigned int minor = 8; minor <= 13; minor++) {
		struct elf_file *file;
		int fd;

		if (!libpython_path(minor, path))
			continue;
		fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_int_equal(elf_file_open(&file, fd, path, NULL), 0);
		for (size_t i = 0; i < 3; i++) {
			uint64_t vaddrs[PLAN_FUNCTIONS];

			if (plan_slots_find(file, domains[i], vaddrs))
				fail_msg("%s: %s", path, domains[i]);
			for (size_t k = 0; k < PLAN_FUNCTIONS; k++) {
				struct elf_symbol symbol;
				char name[64];

				snprintf(name, sizeof(name), "%s%s", wanted[i],
					 plan_function_names[k]);
				assert_int_equal(elf_file_symbol(file, name, &symbol), 0);
				assert_int_equal(vaddrs[k], symbol.vaddr);
			}
		}
		elf_file_close(file);
		seen++;
	}
	if (!seen) {
		print_message("no pyenv with shared libraries\n");
		skip();
	}
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
		cmocka_unit_test(test_pyenv),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
