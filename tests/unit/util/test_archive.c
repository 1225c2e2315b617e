/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "util/archive.h"

#define BLOCK 512

static int memory_file(const char *text)
{
	int fd = memfd_create("member", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

/* An archive with these members, in a file of memory. */
static int archive_make(const char *const members[][2], size_t count)
{
	int fd = memfd_create("archive", MFD_CLOEXEC);
	struct outfile *out;

	assert_int_equal(outfile_on(&out, fd, "archive"), 0);
	for (size_t i = 0; i < count; i++) {
		int member = memory_file(members[i][1]);

		assert_int_equal(archive_add(out, members[i][0], member, 1700000000), 0);
		close(member);
	}
	assert_int_equal(archive_end(out), 0);
	assert_int_equal(outfile_commit(out), 0);
	return fd;
}

static void text_is(const char *path, const char *member, const char *want)
{
	struct infile file;

	assert_int_equal(archive_infile(&file, path, member), 0);
	assert_int_equal(infile_fill(&file, 4096), 0);
	assert_int_equal(file.end - file.at, strlen(want));
	assert_memory_equal(file.data + file.at, want, strlen(want));
	infile_close(&file);
}

static const char *const made[][2] = {
	{ARCHIVE_FIRST, "{}\n"}, {"empty", ""}, {"report.txt", "text"}, {"report.txt", "second"}};

static void round_trip(void **state)
{
	struct archive_member members[ARCHIVE_MEMBERS];
	int fd = archive_make(made, 4);
	char path[64], named[80];
	struct infile file;
	(void)state;

	assert_int_equal(archive_list(fd, members), 4);
	assert_string_equal(members[2].name, "report.txt");
	assert_int_equal(members[2].bytes, 4);
	/* A block for each header, and for each content that is not empty. */
	assert_int_equal(members[2].offset, 4 * BLOCK);
	assert_int_equal(lseek(fd, 0, SEEK_END) % BLOCK, 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	text_is(path, "report.txt", "text");
	text_is(path, "empty", "");
	snprintf(named, sizeof(named), "%s:%s", path, ARCHIVE_FIRST);
	text_is(named, "report.txt", "{}\n");
	assert_int_equal(archive_infile(&file, path, "other"), -ENOENT);
	assert_int_equal(archive_infile(&file, "/nowhere:report.txt", "report.txt"), -ENOENT);
	close(fd);
}

/* Any other file is read as it is, whatever member is asked for. */
static void no_archive(void **state)
{
	struct archive_member members[ARCHIVE_MEMBERS];
	int fd = memory_file("a file");
	char path[64];
	(void)state;

	assert_int_equal(archive_list(fd, members), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	text_is(path, "report.txt", "a file");
	close(fd);
	assert_false(archive_begins((const unsigned char *)ARCHIVE_FIRST, sizeof(ARCHIVE_FIRST)));
}

/* Of each byte of the headers that is changed, and each length that it is cut to, it is told. */
static void damage(void **state)
{
	struct archive_member members[ARCHIVE_MEMBERS];
	int fd = archive_make(made, 4);
	uint64_t bytes = (uint64_t)lseek(fd, 0, SEEK_END);
	(void)state;

	for (uint64_t at = 2 * BLOCK; at < 3 * BLOCK; at++) {
		unsigned char was, lie;

		assert_int_equal(pread(fd, &was, 1, (off_t)at), 1);
		lie = was ^ 0x40;
		assert_int_equal(pwrite(fd, &lie, 1, (off_t)at), 1);
		/* What follows the sum's digits counts for nothing. */
		if (at < 2 * BLOCK + 154 || at > 2 * BLOCK + 155)
			assert_int_equal(archive_list(fd, members), -EINVAL);
		assert_int_equal(pwrite(fd, &was, 1, (off_t)at), 1);
	}
	assert_int_equal(archive_list(fd, members), 4);
	/* The second block of the end is not needed. */
	for (uint64_t end = bytes - BLOCK - 1; end >= BLOCK; end--) {
		assert_int_equal(ftruncate(fd, (off_t)end), 0);
		assert_int_equal(archive_list(fd, members), -EINVAL);
	}
	assert_int_equal(ftruncate(fd, BLOCK - 1), 0);
	assert_int_equal(archive_list(fd, members), 0);
	close(fd);
}

static void many(void **state)
{
	const char *members[ARCHIVE_MEMBERS + 6][2];
	struct archive_member found[ARCHIVE_MEMBERS];
	(void)state;

	for (size_t i = 0; i < ARCHIVE_MEMBERS + 6; i++) {
		members[i][0] = i ? "more" : ARCHIVE_FIRST;
		members[i][1] = "x";
	}
	int fd = archive_make(members, ARCHIVE_MEMBERS + 6);
	assert_int_equal(archive_list(fd, found), ARCHIVE_MEMBERS);
	close(fd);
}

/* A size that needs more than the octal digits: the file is sparse, and its end is looked at. */
static void large(void **state)
{
	char path[] = "/tmp/archive-XXXXXX";
	struct archive_member members[ARCHIVE_MEMBERS];
	int fd = archive_make(made, 1), file = mkstemp(path);
	const uint64_t bytes = (1ull << 33) + 5;
	unsigned char header[BLOCK];
	unsigned int sum = 0;
	(void)state;

	assert_true(file >= 0);
	assert_int_equal(pread(fd, header, BLOCK, 0), BLOCK);
	close(fd);
	memset(header + 124, 0, 12);
	header[124] = 0x80;
	for (int i = 0; i < 8; i++)
		header[135 - i] = (unsigned char)(bytes >> 8 * i);
	memset(header + 148, ' ', 8);
	for (int i = 0; i < BLOCK; i++)
		sum += header[i];
	snprintf((char *)header + 148, 8, "%06o", sum);
	assert_int_equal(pwrite(file, header, BLOCK, 0), BLOCK);
	assert_int_equal(ftruncate(file, (off_t)(BLOCK + bytes + BLOCK - 5 + BLOCK)), 0);
	assert_int_equal(archive_list(file, members), 1);
	assert_true(members[0].bytes == bytes);
	assert_int_equal(ftruncate(file, (off_t)(BLOCK + bytes - 1)), 0);
	assert_int_equal(archive_list(file, members), -EINVAL);
	close(file);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip),
					   cmocka_unit_test(no_archive), cmocka_unit_test(damage),
					   cmocka_unit_test(many), cmocka_unit_test(large)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
