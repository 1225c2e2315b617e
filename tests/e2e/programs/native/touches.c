/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that becomes resident in different ways, each at a marked line. usage: touches FILE
 *
 * FILE is a file of 4 MiB. Prints "ready", waits for a line, touches, prints how much RSS has grown
 * and by which line as JSON {line: [bytes, pages]}, waits again; forks a child that writes to what
 * the parent has touched, prints the same of the child, waits and ends with it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB  (1ul << 20)
#define PAGE 4096ul
#define HUGE (2 * MIB)

#define TOUCHED   (32 * MIB)
#define SET       (16 * MIB)
#define READ      (8 * MIB)
#define HUGES     (16 * MIB)
#define FILED     (4 * MIB)
#define POPULATED (4 * MIB)
#define ZEROS     (8 * MIB)
#define RELEASED  (8 * MIB)
#define DEEP      (1 * MIB)
#define COPIED    (4 * MIB)

static char text[1 << 16];

/* The first figure with this key, in bytes. */
static long field(const char *file, const char *key)
{
	int fd = open(file, O_RDONLY);
	ssize_t got, size = 0;

	while ((got = read(fd, text + size, sizeof(text) - 1 - size)) > 0)
		size += got;
	text[size] = 0;
	close(fd);
	const char *found = strstr(text, key);
	return found ? strtol(found + strlen(key), NULL, 10) * 1024 : 0;
}

static long rss(void)
{
	return field("/proc/self/smaps_rollup", "\nRss:");
}

static char *map(size_t bytes, int more)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more, -1,
			0);

	if (at == MAP_FAILED)
		exit(1);
	if (!more)
		madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

static void wait_line(void)
{
	char line[16];

	if (read(0, line, sizeof(line)) < 0)
		exit(1);
}

static void say(const char *name, long bytes, const char *end)
{
	printf("\"%s\": [%ld, %ld]%s", name, bytes, bytes / (long)PAGE, end);
}

static void touch(volatile char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		at[i] = 1; /* # line touch */
}

static void huge(volatile char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += HUGE)
		at[i] = 1; /* # line huge */
}

static int file(const volatile char *at, size_t bytes)
{
	int sum = 0;

	for (size_t i = 0; i < bytes; i += 16 * PAGE)
		sum += at[i]; /* # line file */
	return sum;
}

static int zeros(const volatile char *at, size_t bytes)
{
	int sum = 0;

	for (size_t i = 0; i < bytes; i += PAGE)
		sum += at[i]; /* # line zeros */
	return sum;
}

static void release(volatile char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		at[i] = 1; /* # line released */
	madvise((void *)at, bytes, MADV_DONTNEED);
}

static __attribute__((noinline)) int deep(void)
{
	volatile char frame[DEEP];

	for (size_t i = DEEP; i >= PAGE; i -= PAGE)
		frame[i - PAGE] = 1; /* # line deep */
	return frame[PAGE];
}

static void copy(volatile char *at, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		at[i] = 2; /* # line copied */
}

int main(int argc, char **argv)
{
	char *touched, *set, *into, *h, *filed;
	int fd, zero = open("/dev/zero", O_RDONLY), sum = 0, status;
	long before, zeroed;

	if (argc != 2 || zero < 0)
		return 2;
	fd = open(argv[1], O_RDONLY);
	setvbuf(stdout, NULL, _IOLBF, 4096);
	before = rss();
	puts("ready");
	wait_line();
	before = rss();
	touched = map(TOUCHED, 0);
	touch(touched, TOUCHED);
	set = map(SET, 0);
	memset(set, 1, SET); /* # line set */
	into = map(READ, 0);
	if (read(zero, into, READ) != (ssize_t)READ) /* # line read */
		return 1;
	h = map(HUGES + HUGE, MAP_NORESERVE);
	h += -(unsigned long)h & (HUGE - 1);
	madvise(h, HUGES, MADV_HUGEPAGE);
	huge(h, HUGES);
	filed = mmap(NULL, FILED, PROT_READ, MAP_PRIVATE, fd, 0);
	sum += file(filed, FILED);
	map(POPULATED, MAP_POPULATE);
	zeroed = rss();
	sum += zeros(map(ZEROS, 0), ZEROS);
	zeroed = rss() - zeroed; /* nothing where the kernel has a page of zeros */
	release(map(RELEASED, 0), RELEASED);
	sum += deep();
	printf("{");
	say("rss", rss() - before, ", ");
	say("touch", TOUCHED, ", ");
	say("set", SET, ", ");
	say("read", READ, ", ");
	say("huge", field("/proc/self/smaps_rollup", "\nAnonHugePages:"), ", ");
	say("file", FILED, ", ");
	say("populated", POPULATED, ", ");
	say("zeros", zeroed, ", ");
	say("deep", DEEP, "}\n");
	wait_line();
	pid_t child = fork();
	if (!child) {
		copy(touched, COPIED);
		printf("{");
		say("rss", rss(), ", ");
		say("pid", (long)getpid(), ", ");
		say("copied", COPIED, "}\n");
		pause();
	}
	wait_line();
	kill(child, 9);
	waitpid(child, &status, 0);
	return sum == 12345;
}
