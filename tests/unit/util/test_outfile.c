/* SPDX-License-Identifier: Apache-2.0 */
/* Output files: written beside their target and renamed at commit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/array.h"
#include "util/outfile.h"

/*
 * --- outfile ---------------------------------------------------------------------------------
 */

static char directory[] = "/tmp/tracer-test-XXXXXX";

static int make_directory(void **state)
{
	(void)state;
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	return mkdtemp(directory) && !chdir(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
	DIR *list = opendir(directory);
	struct dirent *entry;

	(void)state;
	while (list && (entry = readdir(list)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			remove(entry->d_name);
	if (list)
		closedir(list);
	return chdir("/") || rmdir(directory) ? -1 : 0;
}

static int count_files(void)
{
	DIR *list = opendir(".");
	int count = 0;

	assert_non_null(list);
	while (readdir(list))
		count++;
	closedir(list);
	return count - 2; /* "." and ".." */
}

static void put_file(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void assert_file(const char *name, const char *text)
{
	char content[64] = "";
	FILE *file = fopen(name, "r");

	assert_non_null(file);
	assert_true(fread(content, 1, sizeof(content) - 1, file) < sizeof(content));
	fclose(file);
	assert_string_equal(content, text);
}

static void outfile_appears_at_commit(void **state)
{
	struct outfile *file;
	struct stat st;
	char path[64];

	(void)state;
	put_file("result", "old");
	snprintf(path, sizeof(path), "%s/result", directory);
	assert_int_equal(outfile_open(&file, path, OUTFILE_ANY), 0);
	assert_int_equal(outfile_write(file, "ne", 2), 0);
	assert_int_equal(outfile_write(file, "w", 1), 0);
	assert_file("result", "old");
	assert_int_equal(count_files(), 2);
	assert_int_equal(outfile_commit(file), 0);
	assert_file("result", "new");
	assert_int_equal(count_files(), 1);
	assert_int_equal(stat("result", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void outfile_follows_its_directory(void **state)
{
	struct outfile *file;

	(void)state;
	assert_int_equal(mkdir("a", 0700), 0);
	assert_int_equal(outfile_open(&file, "a/result", OUTFILE_ANY), 0);
	assert_int_equal(outfile_write(file, "x", 1), 0);
	assert_int_equal(rename("a", "b"), 0);
	assert_int_equal(mkdir("a", 0700), 0);
	assert_int_equal(outfile_commit(file), 0);
	assert_file("b/result", "x");
	assert_int_equal(access("a/result", F_OK), -1);
	assert_int_equal(remove("b/result"), 0);
}

static void outfile_discarded_leaves_nothing(void **state)
{
	struct outfile *file;

	(void)state;
	put_file("result", "old");
	assert_int_equal(outfile_open(&file, "result", OUTFILE_ANY), 0);
	assert_int_equal(outfile_write(file, "new", 3), 0);
	outfile_discard(file);
	outfile_discard(NULL);
	assert_file("result", "old");
	assert_int_equal(count_files(), 1);
}

/* A process that begins a file and is killed before it is done. */
static pid_t writer_start(void)
{
	struct outfile *file;
	int ready[2];
	char byte;
	pid_t child;

	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (!child) {
		if (outfile_open(&file, "other", OUTFILE_ANY) || outfile_write(file, "part", 4) ||
		    write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return child;
}

static void outfile_removes_what_killed_ones_left(void **state)
{
	pid_t killed = writer_start(), writing;
	struct outfile *file;

	(void)state;
	kill(killed, SIGKILL);
	waitpid(killed, NULL, 0);
	put_file(".tracer-0123456789abcdeX.tmp", ""); /* not one of ours */
	put_file(".tracer-0123456789abcdef.tm", "");
	put_file(".tracer-00000000000000ab.tmp", "");
	put_file("other name", "");
	assert_int_equal(link("other name", ".tracer-00000000000000ac.tmp"), 0);
	assert_int_equal(symlink("other name", ".tracer-00000000000000ad.tmp"), 0);
	assert_int_equal(count_files(), 7);
	writing = writer_start(); /* it has removed the stale file, and writes its own */
	assert_int_equal(count_files(), 6);
	assert_int_equal(outfile_open(&file, "result", OUTFILE_ANY), 0);
	assert_int_equal(count_files(), 7);
	assert_int_equal(outfile_commit(file), 0);
	assert_int_equal(count_files(), 7);
	kill(writing, SIGKILL);
	waitpid(writing, NULL, 0);
	assert_int_equal(outfile_open(&file, "result", OUTFILE_ANY), 0);
	outfile_discard(file);
	assert_int_equal(count_files(), 6);
}

static void outfile_holds_what_was_written(void **state)
{
	static unsigned char data[200001], back[200001];
	struct outfile *file;
	FILE *read_back;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 31 >> 3);
	assert_int_equal(outfile_open(&file, "result", OUTFILE_ANY), 0);
	assert_int_equal(outfile_write(file, data, 65535), 0);
	assert_int_equal(outfile_write(file, data + 65535, 2), 0);
	assert_int_equal(outfile_write(file, data + 65537, sizeof(data) - 65537), 0);
	assert_int_equal(outfile_commit(file), 0);
	read_back = fopen("result", "r");
	assert_non_null(read_back);
	assert_int_equal(fread(back, 1, sizeof(back), read_back), sizeof(back));
	assert_int_equal(fgetc(read_back), EOF);
	fclose(read_back);
	assert_memory_equal(data, back, sizeof(data));
}

static void outfile_replaces_only_regular_files(void **state)
{
	struct outfile *file = NULL;

	(void)state;
	put_file("real", "old");
	assert_int_equal(symlink("real", "link"), 0);
	assert_int_equal(symlink("absent", "dangling"), 0);
	assert_int_equal(mkdir("dir", 0700), 0);
	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_int_equal(outfile_open(&file, "link", OUTFILE_ANY), -ELOOP);
	assert_int_equal(outfile_open(&file, "dangling", OUTFILE_ANY), -ELOOP);
	assert_int_equal(outfile_open(&file, "dir", OUTFILE_ANY), -EISDIR);
	assert_int_equal(outfile_open(&file, "dir/", OUTFILE_ANY), -EISDIR);
	assert_int_equal(outfile_open(&file, ".", OUTFILE_ANY), -EISDIR);
	assert_int_equal(outfile_open(&file, "/", OUTFILE_ANY), -EISDIR);
	assert_int_equal(outfile_open(&file, "fifo", OUTFILE_ANY), -EINVAL);
	assert_int_equal(outfile_open(&file, "/dev/null", OUTFILE_ANY), -EINVAL);
	assert_int_equal(outfile_open(&file, "", OUTFILE_ANY), -ENOENT);
	assert_int_equal(outfile_open(&file, "absent/result", OUTFILE_ANY), -ENOENT);
	assert_int_equal(outfile_open(&file, "real/result", OUTFILE_ANY), -ENOTDIR);
	assert_null(file);
	assert_int_equal(count_files(), 5);
	assert_file("real", "old");
}

static void outfile_symlink_made_meanwhile_is_not_followed(void **state)
{
	struct outfile *file;
	struct stat st;

	(void)state;
	put_file("victim", "old");
	assert_int_equal(outfile_open(&file, "result", OUTFILE_ANY), 0);
	assert_int_equal(outfile_write(file, "new", 3), 0);
	assert_int_equal(symlink("victim", "result"), 0);
	assert_int_equal(outfile_commit(file), 0);
	assert_file("victim", "old");
	assert_int_equal(lstat("result", &st), 0);
	assert_true(S_ISREG(st.st_mode));
}

/* A file size limit makes a write fail as a full disk does, and needs no root. */
static void outfile_failure_keeps_the_old_file(void **state)
{
	static const char zeros[300000];
	struct rlimit before, limit;
	struct outfile *file;
	int err, commit;

	(void)state;
	put_file("result", "old");
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 100000;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(outfile_open(&file, "result", OUTFILE_ANY), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	err = outfile_write(file, zeros, sizeof(zeros));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(err, -EFBIG);
	assert_int_equal(outfile_write(file, "x", 1), -EFBIG); /* the failure sticks */
	commit = outfile_commit(file);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(commit, -EFBIG);
	assert_file("result", "old");
	assert_int_equal(count_files(), 1);
}

/* The last bytes are written only at commit. A failure there must be reported too. */
static void outfile_failure_at_commit(void **state)
{
	struct rlimit before, limit;
	struct outfile *file;
	int err;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 1;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(outfile_open(&file, "result", OUTFILE_ANY), 0);
	assert_int_equal(outfile_write(file, "new", 3), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	err = outfile_commit(file);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_DFL);
	assert_int_equal(err, -EFBIG);
	assert_int_equal(count_files(), 0);
}

static void outfile_dash_is_stdout(void **state)
{
	struct outfile *file;
	int saved, fd, write_err, commit;

	(void)state;
	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	fd = open("captured", O_RDWR | O_CREAT, 0600);
	assert_true(saved >= 0 && fd >= 0);
	dup2(fd, STDOUT_FILENO);
	write_err = outfile_open(&file, "-", OUTFILE_ANY);
	if (!write_err)
		write_err = outfile_write(file, "text", 4);
	commit = outfile_commit(file);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(fd);
	assert_int_equal(write_err, 0);
	assert_int_equal(commit, 0);
	assert_file("captured", "text");
	assert_int_equal(count_files(), 1);
}

static void write_rotated(const struct outfile *like, const char *text, unsigned int keep,
			  int expected)
{
	struct outfile *file;

	assert_int_equal(outfile_again(&file, like), 0);
	assert_int_equal(outfile_write(file, text, strlen(text)), 0);
	assert_int_equal(outfile_rotate(file, keep), expected);
}

static void outfile_rotates(void **state)
{
	struct outfile *like;

	(void)state;
	assert_int_equal(outfile_open(&like, "result", OUTFILE_ANY), 0);
	write_rotated(like, "1", 3, 0);
	assert_int_equal(count_files(), 2); /* includes like's own file, not committed yet */
	write_rotated(like, "2", 3, 0);
	write_rotated(like, "3", 3, 0);
	write_rotated(like, "4", 3, 0);
	assert_file("result", "4");
	assert_file("result.1", "3");
	assert_file("result.2", "2");
	assert_int_equal(count_files(), 4);
	write_rotated(like, "5", 1, 0); /* one is kept; other existing files are left alone */
	assert_file("result", "5");
	assert_file("result.1", "3");
	assert_int_equal(outfile_write(like, "6", 1), 0);
	assert_int_equal(outfile_rotate(like, 2), 0);
	assert_file("result", "6");
	assert_file("result.1", "5");
	assert_file("result.2", "2");
	assert_int_equal(count_files(), 3);
}

static void outfile_rotates_only_regular_files(void **state)
{
	struct outfile *like;

	(void)state;
	put_file("other", "other");
	assert_int_equal(outfile_open(&like, "result", OUTFILE_ANY), 0);
	write_rotated(like, "1", 3, 0);
	assert_int_equal(symlink("other", "result.2"), 0);
	write_rotated(like, "2", 3, -EINVAL);
	assert_file("result", "1");
	assert_file("other", "other");
	assert_int_equal(mkdir("result.1", 0700), 0);
	write_rotated(like, "3", 2, -EINVAL);
	assert_file("result", "1");
	outfile_discard(like);
	assert_int_equal(count_files(), 4);
}

static void outfile_around_a_descriptor(void **state)
{
	struct outfile *file;
	int fd = open("given", O_RDWR | O_CREAT, 0600);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(outfile_on(&file, fd, "given"), 0);
	assert_int_equal(outfile_fd(file), fd);
	assert_int_equal(outfile_write(file, "text", 4), 0);
	assert_int_equal(outfile_commit(file), 0);
	assert_file("given", "text");
	assert_int_equal(close(fd), 0); /* it still belongs to the caller */
}

/* Only empty files and those that begin like ours, unless any may be replaced. */
static void outfile_keeps_foreign_files(void **state)
{
	static const char *const foreign[] = {"my notes\n", "key: 5\n",
					      "\x1f\x8b\x08 not a profile", "{\"a\": 1}\n",
					      "main;f (a.py:3) 12\nand a note\n"};
	static const char *const own[] = {"",
					  "\x89TRACER\n and more",
					  "TRACERCP",
					  "trcrheap",
					  "PERFILE2",
					  "DTiJ\1",
					  "main (a.py:1);f (a.py:3) 12\n",
					  "7f0012345678 40 py::f:/a.py\n",
					  "\n"};
	struct outfile *file;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
		put_file("result", foreign[i]);
		assert_int_equal(outfile_open(&file, "result", OUTFILE_OWN), -EEXIST);
		assert_int_equal(outfile_open(&file, "result", OUTFILE_ANY), 0);
		outfile_discard(file);
		assert_file("result", foreign[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		put_file("result", own[i]);
		assert_int_equal(outfile_open(&file, "result", OUTFILE_OWN), 0);
		outfile_discard(file);
	}
	assert_int_equal(count_files(), 1);
}

#define with_directory(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_directory(outfile_appears_at_commit),
		with_directory(outfile_follows_its_directory),
		with_directory(outfile_discarded_leaves_nothing),
		with_directory(outfile_removes_what_killed_ones_left),
		with_directory(outfile_holds_what_was_written),
		with_directory(outfile_replaces_only_regular_files),
		with_directory(outfile_symlink_made_meanwhile_is_not_followed),
		with_directory(outfile_failure_keeps_the_old_file),
		with_directory(outfile_failure_at_commit),
		with_directory(outfile_dash_is_stdout),
		with_directory(outfile_rotates),
		with_directory(outfile_rotates_only_regular_files),
		with_directory(outfile_around_a_descriptor),
		with_directory(outfile_keeps_foreign_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
