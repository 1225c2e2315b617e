/* SPDX-License-Identifier: Apache-2.0 */
/* Functions found by .eh_frame, compared with the linker's table of them: .eh_frame_hdr. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "object/elf/elf_frames.h"

/* bytes before the table of {function, entry}, each an offset from the section */
#define HEADER 12

static int compare(const void *a, const void *b)
{
	const uint64_t *left = a, *right = b;

	return *left < *right ? -1 : *left > *right;
}

static void check(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t *starts, vaddr, size;
	struct elf_file *file;
	uint8_t *header;
	uint32_t known;
	size_t count;

	assert_true(fd >= 0);
	assert_int_equal(elf_file_open(&file, fd, path, "/dev/null"), 0);
	assert_int_equal(elf_file_section(file, ".eh_frame_hdr", &vaddr, &size), 0);
	header = malloc(size);
	assert_int_equal(elf_file_read(file, vaddr, header, size), (int)size);
	memcpy(&known, header + 8, sizeof(known));
	assert_int_equal(elf_frames_starts(file, &starts, &count), 0);
	assert_int_equal(count, known);
	qsort(starts, count, sizeof(*starts), compare);
	for (size_t i = 0; i < count; i++) {
		int32_t distance;

		memcpy(&distance, header + HEADER + 8 * i, sizeof(distance));
		assert_int_equal(starts[i], vaddr + (uint64_t)(int64_t)distance);
	}
	free(starts);
	free(header);
	elf_file_close(file);
}

static void test_self(void **state)
{
	(void)state;
	check("/proc/self/exe");
}

static void test_libc(void **state)
{
	static const char *const paths[] = {"/lib/x86_64-linux-gnu/libc.so.6",
					    "/usr/lib64/libc.so.6"};
	(void)state;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (!access(paths[i], R_OK)) {
			check(paths[i]);
			return;
		}
	printf("no libc where it is looked for\n");
	skip();
}

/* For any content of the file, nothing beyond its end is read, and decoding terminates. */
static void test_damaged(void **state)
{
	static const uint8_t whole[] = {
		/*
		 * 0: a common entry "zR" of length 16; its addresses have 4 bytes and are relative
		 * to themselves
		 */
		16, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0, 0, 0,
		/* 20: an entry of length 12; its common entry begins 24 bytes before its id */
		12, 0, 0, 0, 24, 0, 0, 0, 0x64, 0, 0, 0, 0x10, 0, 0, 0,
		/* 36: a terminator, followed by another entry */
		0, 0, 0, 0, 12, 0, 0, 0, 44, 0, 0, 0, 0x64, 0, 0, 0, 0x10, 0, 0, 0};
	uint64_t starts[4] = {0};
	(void)state;

	assert_int_equal(elf_frames_decode(whole, sizeof(whole), 0x1000, starts, 4), 2);
	assert_int_equal(starts[0], 0x1000 + 28 + 0x64);
	assert_int_equal(starts[1], 0x1000 + 48 + 0x64);
	assert_int_equal(elf_frames_decode(whole, sizeof(whole), 0x1000, starts, 0), 2);
	for (size_t size = 0; size < sizeof(whole); size++) {
		uint8_t *bytes = malloc(size + 1); /* the sanitizer checks its end */

		memcpy(bytes, whole, size);
		assert_true(elf_frames_decode(bytes, size, 0x1000, starts, 4) <= 2);
		for (size_t at = 0; at < size; at++) {
			bytes[at] = 0xff;
			elf_frames_decode(bytes, size, 0x1000, starts, 4);
			bytes[at] = whole[at];
		}
		free(bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_self), cmocka_unit_test(test_libc),
					   cmocka_unit_test(test_damaged)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
