/* SPDX-License-Identifier: Apache-2.0 */
/* Separate debug files, found by link and by build ID. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_images.h"
#include "object/elf/elf_file.h"

static char directory[] = "/tmp/tracer-test-XXXXXX";

static int make_directory(void **state)
{
	(void)state;
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
	char command[4096];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	return system(command);
}

static int remove_directory(void **state)
{
	(void)state;
	return run("rm -rf %s", directory) ? -1 : 0;
}

/* DIRECTORY/bin/program: this program stripped, with a link to DIRECTORY/program.debug. */
static void strip_ourselves(void)
{
	if (run("command -v objcopy >/dev/null")) {
		print_message("skipped: no objcopy\n");
		skip();
	}
	assert_int_equal(
		run("cd %s && mkdir bin && cp /proc/%d/exe full && objcopy --only-keep-debug full "
		    "program.debug && objcopy --strip-all --add-gnu-debuglink=program.debug full "
		    "bin/program",
		    directory, getpid()),
		0);
}

static void assert_landmark(const char *root, int expected)
{
	struct elf_symbol symbol;
	struct elf_file *file;
	char path[64];

	snprintf(path, sizeof(path), "%s/bin/program", directory);
	file = open_elf(path, root);
	assert_int_equal(elf_file_has_symtab(file), !expected);
	assert_int_equal(elf_file_symbol(file, "landmark_function", &symbol), expected);
	if (!expected) {
		assert_int_equal(symbol.source, ELF_FROM_DEBUG_FILE);
		assert_int_equal(symbol.vaddr + own_bias(file, (void *)landmark_data),
				 (uintptr_t)landmark_function);
		assert_int_equal(elf_file_symbol_at(file, symbol.vaddr, &symbol), 0);
		assert_string_equal(symbol.name, "landmark_function");
	}
	elf_file_close(file);
}

static void debug_file_by_link(void **state)
{
	char root[64];

	(void)state;
	strip_ourselves();
	snprintf(root, sizeof(root), "%s/root", directory);
	assert_landmark(root, -ENOENT);
	assert_int_equal(run("cd %s && mkdir -p root/%s/bin && cp program.debug root/%s/bin",
			     directory, directory, directory),
			 0);
	assert_landmark(root, 0);
	/* With one more byte the file does not match the checksum. */
	assert_int_equal(run("printf x >> %s/%s/bin/program.debug", root, directory), 0);
	assert_landmark(root, -ENOENT);
}

/* As gdb looks for it: without any root, beside the program and in .debug/. */
static void debug_file_beside_the_program(void **state)
{
	static const char *const folders[] = {"bin", "bin/.debug"};

	(void)state;
	strip_ourselves();
	assert_int_equal(
		run("cd %s && objcopy --remove-section=.note.gnu.build-id bin/program", directory),
		0);
	for (size_t i = 0; i < 2; i++) {
		const char *folder = folders[i];

		assert_landmark(NULL, -ENOENT);
		assert_int_equal(run("cd %s && mkdir -p %s && cp program.debug %s", directory,
				     folder, folder),
				 0);
		assert_landmark(NULL, 0);
		/* Nowhere else when another root is given. */
		assert_landmark("/nonexistent", -ENOENT);
		assert_int_equal(run("printf x >> %s/%s/program.debug", directory, folder), 0);
		assert_landmark(NULL, -ENOENT);
		/* A link could lead to a file that the program's owner may not read. */
		assert_int_equal(
			run("cd %s/%s && ln -sf %s/program.debug .", directory, folder, directory),
			0);
		assert_landmark(NULL, -ENOENT);
		assert_int_equal(run("rm %s/%s/program.debug", directory, folder), 0);
	}
}

static void debug_file_by_build_id(void **state)
{
	struct elf_file *self = open_elf("/proc/self/exe", NO_DEBUG);
	const char *id = elf_file_build_id(self);
	char root[64];

	(void)state;
	if (!*id) {
		elf_file_close(self);
		print_message("skipped: built without build id\n");
		skip();
	}
	strip_ourselves();
	snprintf(root, sizeof(root), "%s/root", directory);
	assert_int_equal(run("cd %s && mkdir -p root/.build-id/%.2s && cp program.debug "
			     "root/.build-id/%.2s/%s.debug",
			     directory, id, id, id + 2),
			 0);
	assert_landmark(root, 0);
	/* A file without that build id, a FIFO and a text file are treated as missing. */
	assert_int_equal(run("cd %s && objcopy --remove-section=.note.gnu.build-id full "
			     "root/.build-id/%.2s/%s.debug",
			     directory, id, id + 2),
			 0);
	assert_landmark(root, -ENOENT);
	assert_int_equal(run("cd %s/.build-id/%.2s && rm %s.debug && mkfifo %s.debug", root, id,
			     id + 2, id + 2),
			 0);
	assert_landmark(root, -ENOENT);
	assert_int_equal(run("cd %s/.build-id/%.2s && rm %s.debug && echo > %s.debug", root, id,
			     id + 2, id + 2),
			 0);
	assert_landmark(root, -ENOENT);
	elf_file_close(self);
}

#define with_directory(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_directory(debug_file_by_link),
		with_directory(debug_file_beside_the_program),
		with_directory(debug_file_by_build_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
