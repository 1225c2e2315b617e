/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a process's memory: what is read, and that nothing of the process changes. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "proc/memory.h"
#include "proc/pagemap.h"
#include "sanitized.h"

#define PAGE       4096u
#define FORKED     (8u << 20)
#define FILE_PAGES 3u
#define FILE_BYTES (2 * PAGE + 100)

enum area {
	AREA_FORKED,
	AREA_FRESH,
	AREA_FILE,
	AREA_SHARED,
	AREA_NONE,
	AREA_GONE,
	AREA_LATE,
	AREAS
};

struct child {
	pid_t pid;
	int command, answer;
	uint8_t *areas[AREAS];
	uint8_t *content; /* of the file */
	struct space *space;
};

static uint8_t *map(size_t bytes, int protection, int flags, int fd)
{
	uint8_t *area = mmap(NULL, bytes, protection, flags, fd, 0);

	assert_ptr_not_equal(area, MAP_FAILED);
	return area;
}

static void child_run(const struct child *child, int command, int answer)
{
	char what;

	munmap(child->areas[AREA_GONE], PAGE);
	while (write(answer, "", 1) == 1 && read(command, &what, 1) == 1) {
		if (what == 'm' &&
		    mmap(child->areas[AREA_LATE], PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
			memcpy(child->areas[AREA_LATE], "late", 4);
		if (what == 'x')
			execl("/bin/cat", "cat", NULL);
	}
	_exit(0);
}

static void child_wait(const struct child *child)
{
	char byte;

	assert_int_equal(read(child->answer, &byte, 1), 1);
}

static void child_ask(const struct child *child, char what)
{
	assert_int_equal(write(child->command, &what, 1), 1);
	child_wait(child);
}

static int file_make(uint8_t content[FILE_PAGES * PAGE])
{
	char path[] = "/var/tmp/test_memory.XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	for (size_t i = 0; i < FILE_BYTES; i++)
		content[i] = (uint8_t)(i * 13 >> 3);
	assert_int_equal(write(fd, content, FILE_BYTES), FILE_BYTES);
	return fd;
}

static void child_start(struct child *child)
{
	int commands[2], answers[2], file;
	const int anonymous = MAP_PRIVATE | MAP_ANONYMOUS, writable = PROT_READ | PROT_WRITE;

	child->content = calloc(FILE_PAGES, PAGE);
	file = file_make(child->content);
	child->areas[AREA_FORKED] = map(FORKED, writable, anonymous, -1);
	for (size_t i = 0; i < FORKED; i++)
		child->areas[AREA_FORKED][i] = (uint8_t)(i * 7 >> 2);
	child->areas[AREA_FRESH] = map(64 * PAGE, writable, anonymous, -1);
	child->areas[AREA_FILE] = map(FILE_PAGES * PAGE, PROT_READ, MAP_PRIVATE, file);
	child->areas[AREA_SHARED] = map(FILE_PAGES * PAGE, PROT_READ, MAP_SHARED, file);
	child->areas[AREA_NONE] = map(PAGE, writable, anonymous, -1);
	child->areas[AREA_NONE][0] = 1;
	mprotect(child->areas[AREA_NONE], PAGE, PROT_NONE);
	child->areas[AREA_GONE] = map(PAGE, writable, anonymous, -1);
	child->areas[AREA_GONE][0] = 1;
	child->areas[AREA_LATE] = map(PAGE, writable, anonymous, -1);
	munmap(child->areas[AREA_LATE], PAGE);
	assert_int_equal(pipe(commands), 0);
	assert_int_equal(pipe2(answers, O_CLOEXEC), 0);
	child->pid = fork();
	assert_true(child->pid >= 0);
	if (!child->pid) {
		dup2(commands[0], 0);
		close(commands[1]);
		child_run(child, 0, answers[1]);
	}
	close(commands[0]);
	close(answers[1]);
	close(file);
	child->command = commands[1];
	child->answer = answers[0];
	child_wait(child);
	assert_int_equal(space_open(&child->space, child->pid), 0);
}

static void child_end(struct child *child)
{
	close(child->command);
	kill(child->pid, SIGKILL);
	waitpid(child->pid, NULL, 0);
	close(child->answer);
	space_close(child->space);
	free(child->content);
	munmap(child->areas[AREA_FORKED], FORKED);
}

static int area_read(const struct child *child, enum area area, size_t at, void *out, size_t bytes)
{
	return space_read(child->space, (uintptr_t)child->areas[area] + at, out, bytes);
}

/* KiB of a line of smaps_rollup. */
static long rollup_kib(pid_t pid, const char *key)
{
	char path[48], line[128];
	long kib = -1, value;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)) &&
		    sscanf(line + strlen(key), ": %ld", &value) == 1)
			kib = value;
	fclose(file);
	assert_true(kib >= 0);
	return kib;
}

/* Which pages of an area are in the process's page tables. */
static size_t present_count(const struct child *child, enum area area, size_t pages)
{
	uint64_t entries[64];
	int fd = pagemap_open(child->pid);
	size_t count = 0;

	assert_true(fd >= 0);
	assert_int_equal(pagemap_read(fd, (uintptr_t)child->areas[area], entries, pages), pages);
	for (size_t i = 0; i < pages; i++)
		count += (entries[i] & PAGEMAP_PRESENT) != 0;
	close(fd);
	return count;
}

static void test_what_is_read(void **state)
{
	uint8_t *copy = malloc(FORKED), expected;
	struct child child;
	uint64_t word;

	(void)state;
	child_start(&child);
	/* What changes in this process is not the child's. */
	memset(child.areas[AREA_FORKED] + PAGE, 0, PAGE);
	assert_int_equal(area_read(&child, AREA_FORKED, 1, copy, FORKED - 1), 0);
	for (size_t i = 1; i < FORKED; i++) {
		expected = (uint8_t)(i * 7 >> 2);
		if (copy[i - 1] != expected)
			fail_msg("byte %zu is %d", i, copy[i - 1]);
	}
	assert_int_equal(area_read(&child, AREA_FILE, 50, copy, FILE_PAGES * PAGE - 50), 0);
	assert_memory_equal(copy, child.content + 50, FILE_PAGES * PAGE - 50);
	memset(copy, 1, 2 * PAGE);
	assert_int_equal(area_read(&child, AREA_FRESH, PAGE / 2, copy, 2 * PAGE), 0);
	for (size_t i = 0; i < 2 * PAGE; i++)
		assert_int_equal(copy[i], 0);
	assert_int_equal(space_missed(child.space).absent, 0);
	assert_int_equal(area_read(&child, AREA_SHARED, 0, copy, PAGE), -EFAULT);
	assert_int_equal(area_read(&child, AREA_SHARED, 5, copy, 8), -EFAULT);
	assert_int_equal(space_missed(child.space).absent, PAGE);
	assert_int_equal(area_read(&child, AREA_NONE, 0, copy, 1), -EFAULT);
	assert_int_equal(area_read(&child, AREA_GONE, 0, copy, 1), -EFAULT);
	assert_int_equal(area_read(&child, AREA_GONE, 0, copy, 0), 0);
	assert_int_equal(space_read(child.space, 0, copy, 8), -EFAULT);
	for (unsigned int bit = 46; bit < 64; bit++)
		assert_int_equal(space_read(child.space, 1ull << bit, copy, 8), -EFAULT);
	assert_int_equal(space_read(child.space, UINT64_MAX - 3, copy, 8), -EFAULT);
	assert_int_equal(space_read_u64(child.space, (uintptr_t)child.areas[AREA_FORKED], &word),
			 0);
	assert_memory_equal(&word, child.areas[AREA_FORKED], sizeof(word));
	child_end(&child);
	free(copy);
}

static void test_nothing_changes(void **state)
{
	static const char *const keys[] = {"Rss",           "Pss",          "Private_Clean",
					   "Private_Dirty", "Shared_Clean", "Shared_Dirty",
					   "Swap"};
	long before[sizeof(keys) / sizeof(keys[0])];
	struct child child;
	uint8_t *copy;

	(void)state;
	if (SANITIZED) {
		print_message("the sanitizers' own memory makes the figures move\n");
		skip();
	}
	copy = malloc(FORKED);
	child_start(&child);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		before[i] = rollup_kib(child.pid, keys[i]);
	assert_int_equal(area_read(&child, AREA_FORKED, 0, copy, FORKED), 0);
	assert_int_equal(area_read(&child, AREA_FRESH, 0, copy, 64 * PAGE), 0);
	assert_int_equal(area_read(&child, AREA_FILE, 0, copy, FILE_BYTES), 0);
	area_read(&child, AREA_SHARED, 0, copy, FILE_BYTES);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		long now = rollup_kib(child.pid, keys[i]);

		if (labs(now - before[i]) > 100)
			fail_msg("%s was %ld KiB, is %ld", keys[i], before[i], now);
	}
	assert_int_equal(present_count(&child, AREA_FRESH, 64), 0);
	assert_int_equal(present_count(&child, AREA_FILE, FILE_PAGES), 0);
	assert_int_equal(present_count(&child, AREA_SHARED, FILE_PAGES), 0);
	child_end(&child);
	free(copy);
}

/* Memory that was mapped after the maps were read is found. */
static void test_later_map(void **state)
{
	struct child child;
	char text[4];

	(void)state;
	child_start(&child);
	assert_int_equal(area_read(&child, AREA_LATE, 0, text, 4), -EFAULT);
	child_ask(&child, 'm');
	assert_int_equal(area_read(&child, AREA_LATE, 0, text, 4), 0);
	assert_memory_equal(text, "late", 4);
	assert_int_equal(memory_read(child.pid, (uintptr_t)child.areas[AREA_LATE], text, 4), 0);
	child_end(&child);
}

/* A space belongs to the program that ran when it was opened. */
static void test_exec_and_end(void **state)
{
	struct space *again, *shared;
	struct child child;
	uint8_t byte;

	(void)state;
	child_start(&child);
	shared = space_share(child.space);
	assert_int_equal(write(child.command, "x", 1), 1);
	/* An exec closes the pipe of answers. */
	assert_int_equal(read(child.answer, &byte, 1), 0);
	assert_int_equal(area_read(&child, AREA_FORKED, 0, &byte, 1), -ESRCH);
	assert_int_equal(area_read(&child, AREA_FRESH, 0, &byte, 1), -ESRCH);
	assert_int_equal(space_open(&again, child.pid), 0);
	child_end(&child);
	assert_int_equal(space_read(shared, 4096, &byte, 1), -ESRCH);
	space_close(shared);
	assert_int_equal(space_read(again, 4096, &byte, 1), -ESRCH);
	space_close(again);
	assert_int_equal(space_open(&again, child.pid), -ESRCH);
	assert_int_equal(space_read(NULL, 4096, &byte, 1), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_read),
		cmocka_unit_test(test_nothing_changes),
		cmocka_unit_test(test_later_map),
		cmocka_unit_test(test_exec_and_end),
	};

	return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
