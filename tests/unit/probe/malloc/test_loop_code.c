/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluation loop's code, compared with the symbols of real interpreters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe/malloc/loop_code.h"
#include "pythons.h"
#include "runtime/cpython/runtime.h"

static void check(unsigned int minor)
{
	char *program = "import os, signal\nos.write(1, b'\\n')\nsignal.pause()";
	struct abi_code found[ABI_LOOP_CODES];
	struct python_child child = {0};
	struct python_runtime runtime;
	struct elf_symbol hot, cold;
	char path[PATH_MAX];

	if (!python_path(minor, path))
		skip();
	assert_int_equal(python_start(&child, (char *[]){path, "-c", program, NULL}, NULL), 0);
	assert_int_equal(getc(child.out), '\n');
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
	loop_code_find(runtime.file, found);
	assert_int_equal(elf_file_symbol(runtime.file, "_PyEval_EvalFrameDefault", &hot), 0);
	assert_int_equal(found[0].start, hot.vaddr);
	assert_int_equal(found[0].bytes, hot.size);
	if (!elf_file_symbol(runtime.file, "_PyEval_EvalFrameDefault.cold", &cold)) {
		assert_int_equal(found[1].start, cold.vaddr);
		assert_true(found[1].bytes >= cold.size);
	} else {
		assert_int_equal(found[1].bytes, 0);
	}
	python_runtime_close(&runtime);
	python_stop(&child);
}

/* A function with two ways into its cold part, between others. */
static const char source[] =
	"extern __attribute__((cold)) void seldom(int), rarely(int);\n"
	"extern int often(int);\n"
	"int before(int a) { return often(a) + 1; }\n"
	"int _PyEval_EvalFrameDefault(int a, int b) {\n"
	"  if (a > 9) { seldom(a); b += often(b); }\n"
	"  if (b > 9) { rarely(b); a += often(a); }\n"
	"  return often(a) + b;\n"
	"}\n"
	"int after(int a) { if (a > 7) { seldom(a); a += often(a); } return often(a) + 3; }\n";

static void test_cold(void **state)
{
	char folder[] = "/tmp/loop-code-XXXXXX", command[256], path[64];
	struct abi_code found[ABI_LOOP_CODES];
	struct elf_symbol hot, cold;
	struct elf_file *file;
	FILE *out;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/loop.c", folder);
	out = fopen(path, "w");
	assert_non_null(out);
	assert_true(fputs(source, out) >= 0);
	assert_int_equal(fclose(out), 0);
	snprintf(command, sizeof(command), "cd %s && gcc -O2 -fPIC -shared loop.c -o loop.so",
		 folder);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof(path), "%s/loop.so", folder);
	assert_int_equal(elf_file_open(&file, open(path, O_RDONLY), path, NULL), 0);
	loop_code_find(file, found);
	assert_int_equal(elf_file_symbol(file, "_PyEval_EvalFrameDefault", &hot), 0);
	assert_int_equal(elf_file_symbol(file, "_PyEval_EvalFrameDefault.cold", &cold), 0);
	assert_int_equal(found[0].start, hot.vaddr);
	assert_int_equal(found[1].start, cold.vaddr);
	assert_true(found[1].bytes >= cold.size && found[1].bytes < cold.size + 16);
	elf_file_close(file);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

static void test_38(void **state)
{
	(void)state;
	check(8);
}

static void test_39(void **state)
{
	(void)state;
	check(9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cold),
		cmocka_unit_test(test_38),
		cmocka_unit_test(test_39),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
