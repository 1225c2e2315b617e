/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "util/regular.h"

static int folder_make(void **state)
{
	char path[] = "/tmp/regular-XXXXXX";
	int *fd = malloc(sizeof(*fd)), file;

	assert_non_null(fd);
	assert_non_null(mkdtemp(path));
	*fd = open(path, O_PATH | O_DIRECTORY);
	file = openat(*fd, "file", O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(file, "text", 4), 4);
	close(file);
	assert_int_equal(mkfifoat(*fd, "fifo", 0600), 0);
	assert_int_equal(mkdirat(*fd, "folder", 0700), 0);
	assert_int_equal(symlinkat("file", *fd, "link"), 0);
	*state = fd;
	assert_int_equal(chdir(path), 0);
	return 0;
}

static int folder_remove(void **state)
{
	static const char *const names[] = {"file", "fifo", "link"};
	int *fd = *state;
	char path[64] = "";

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlinkat(*fd, names[i], 0);
	unlinkat(*fd, "folder", AT_REMOVEDIR);
	if (getcwd(path, sizeof(path)) && !chdir("/"))
		rmdir(path);
	close(*fd);
	free(fd);
	return 0;
}

/* What is no regular file is not opened, and not waited for. */
static void types(void **state)
{
	int folder = *(int *)*state, fd, path_fd;
	struct stat st, same;
	char text[8];

	fd = regular_open(folder, "file", 0);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, sizeof(text)), 4);
	assert_int_equal(regular_stat(fd, &st), 0);
	assert_int_equal(fstat(fd, &same), 0);
	assert_int_equal(st.st_ino, same.st_ino);
	assert_false(regular_is_copy(fd));
	assert_int_equal(regular_origin(fd), fd);
	close(fd);
	assert_int_equal(regular_open(folder, "fifo", 0), -EINVAL);
	assert_int_equal(regular_open(folder, "folder", 0), -EISDIR);
	assert_int_equal(regular_open(folder, "none", 0), -ENOENT);
	assert_int_equal(regular_open(folder, "../x", RESOLVE_BENEATH), -EXDEV);
	assert_int_equal(regular_open(folder, "link", RESOLVE_NO_SYMLINKS), -ELOOP);
	fd = regular_open(folder, "link", 0);
	assert_true(fd >= 0);
	close(fd);
	path_fd = openat(folder, "fifo", O_PATH);
	assert_int_equal(regular_reopen(path_fd), -EINVAL);
	close(path_fd);
}

struct names {
	int count, folders;
};

static int name_count(void *context, const char *name)
{
	struct names *names = context;

	names->count++;
	names->folders += !strcmp(name, "folder");
	return 0;
}

static void folders(void **state)
{
	int folder = *(int *)*state, below;
	struct names names = {0};

	assert_int_equal(regular_names(folder, 10, name_count, &names), 0);
	assert_int_equal(names.count, 4);
	assert_int_equal(names.folders, 1);
	assert_int_equal(regular_names(folder, 3, name_count, &names), -E2BIG);
	below = regular_folder(folder, "folder", 0);
	assert_true(below >= 0);
	assert_int_equal(regular_is_local(below), 1);
	names = (struct names){0};
	assert_int_equal(regular_names(below, 10, name_count, &names), 0);
	assert_int_equal(names.count, 0);
	close(below);
	assert_int_equal(regular_folder(folder, "file", 0), -ENOTDIR);
	below = regular_open(folder, "file", 0);
	assert_int_equal(regular_names(below, 10, name_count, &names), -ENOTDIR);
	close(below);
}

/* A fork has a process of its own, and leaves ours alone. */
static void forked(void **state)
{
	int folder = *(int *)*state, fd = regular_open(folder, "file", 0);
	pid_t child = fork();

	if (!child) {
		fd = regular_open(folder, "file", 0);
		_exit(fd < 0);
	}
	int status = 1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(fd);
	fd = regular_open(folder, "file", 0);
	assert_true(fd >= 0);
	close(fd);
}

/* A fork that has closed what it inherited, and has other descriptors of these numbers. */
static void forgotten(void **state)
{
	int folder = *(int *)*state, fd = regular_open(folder, "file", 0);
	pid_t child = fork();

	if (!child) {
		regular_forget();
		for (int i = STDERR_FILENO + 1; i < 64; i++)
			if (i != folder)
				dup2(folder, i);
		int own = regular_open(folder, "file", 0);
		for (int i = STDERR_FILENO + 1; i < 64; i++)
			if (fcntl(i, F_GETFD) < 0)
				_exit(2);
		_exit(own < 0);
	}
	int status = 1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(types, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(folders, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(forked, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(forgotten, folder_make, folder_remove),
	};

	return cmocka_run_group_tests_name("regular", tests, NULL, NULL);
}
