/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of files with a Python runtime: how long it keeps a file open. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/cpython/runtime_files.h"

/* A file that is asked for stays; one that is not goes, with its descriptor. */
static void test_sweep(void **state)
{
	struct process_map map = {.inode = 1, .device_major = 2, .device_minor = 3};
	struct runtime_files *files;
	struct elf_file *file, *found;

	(void)state;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_file_open(&file, fd, "/proc/self/exe", ""), 0);
	assert_int_equal(runtime_files_new(&files), 0);
	runtime_files_keep(files, &map, file, 1);
	elf_file_close(file);
	for (int i = 0; i < 3; i++) {
		runtime_files_sweep(files);
		assert_int_equal(runtime_files_find(files, &map, &found), 1);
		elf_file_close(found);
	}
	runtime_files_sweep(files);
	assert_int_not_equal(fcntl(fd, F_GETFD), -1);
	runtime_files_sweep(files);
	assert_int_equal(runtime_files_find(files, &map, &found), -ENOENT);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	runtime_files_free(files);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_sweep)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
