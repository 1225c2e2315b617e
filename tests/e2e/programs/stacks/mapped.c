/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps memory in every way that libc has a function for. usage: mapped
 *
 * Prints "ready"; for each line on stdin maps more and prints what is mapped as {line: [bytes,
 * ranges]}; ends with its stdin. Before each system call the stack has words of earlier calls,
 * which may be taken for the caller's. It has no allocator in it: nothing else is mapped.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOINLINE  __attribute__((noinline, noclone))
#define STEPS_MAX 16
#define EACH      3
#define APART     (1u << 20) /* ranges never touch, so that each stays one */
#define DEPTH     20

static size_t page;
static int steps;

static void *checked(void *range)
{
	if (range == MAP_FAILED)
		abort();
	return range;
}

/* Leaves return addresses all over the stack that later calls use. */
NOINLINE static int calls_leave(int depth)
{
	volatile int words[6] = {depth};

	return depth ? calls_leave(depth - 1) + words[0] : words[0];
}

/* Where nothing else is mapped. */
static char *place_take(void)
{
	static char *places;
	char *place;

	if (!places)
		places = (char *)checked(mmap(NULL, 256ul * APART, PROT_NONE,
					      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	place = places;
	places += 2 * APART;
	return place;
}

#define MAP(place, bytes, protection)                                                              \
	checked(mmap(place, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0))

NOINLINE static void maps(void)
{
	char *place = place_take();

	calls_leave(DEPTH);
	MAP(place, 3 * page, PROT_READ | PROT_WRITE); /* # line MAPPED */
}

NOINLINE static void unmaps(void)
{
	char *place = place_take();

	calls_leave(DEPTH);
	MAP(place, 4 * page, PROT_READ | PROT_WRITE); /* # line UNMAPPED */
	munmap(place, 4 * page);
}

/* The range moves: all of it is of the line that has moved it. */
NOINLINE static void moves(void)
{
	char *from = place_take(), *to = place_take();

	calls_leave(DEPTH);
	MAP(from, 2 * page, PROT_READ | PROT_WRITE); /* # line MOVED */
	calls_leave(DEPTH);
	checked(mremap(from, 2 * page, 5 * page, MREMAP_MAYMOVE | MREMAP_FIXED, /* # line GROWN */
		       to));
}

/* It shrinks where it is. */
NOINLINE static void shrinks(void)
{
	char *place = place_take();

	MAP(place, 6 * page, PROT_READ | PROT_WRITE); /* # line LARGE */
	calls_leave(DEPTH);
	checked(mremap(place, 6 * page, page, 0)); /* # line SHRUNK */
}

/* What is only reserved does not count. */
NOINLINE static void protects(void)
{
	char *place = place_take();

	MAP(place, 7 * page, PROT_NONE); /* # line RESERVED */
	calls_leave(DEPTH);
	mprotect(place + page, 2 * page, PROT_READ | PROT_WRITE); /* # line COMMITTED */
}

static void say(void)
{
	char text[512];
	long done = (long)steps * EACH, bytes = done * (long)page;
	int length = snprintf(text, sizeof(text),
			      "{\"MAPPED\": [%ld, %ld], \"UNMAPPED\": [0, 0], \"MOVED\": [0, 0], "
			      "\"GROWN\": [%ld, %ld], \"LARGE\": [0, 0], \"SHRUNK\": [%ld, %ld], "
			      "\"RESERVED\": [0, 0], \"COMMITTED\": [%ld, %ld]}\n",
			      3 * bytes, done, 5 * bytes, done, bytes, done, 2 * bytes, done);

	if (write(1, text, (size_t)length) != length)
		abort();
}

int main(void)
{
	char text[100];

	page = (size_t)sysconf(_SC_PAGESIZE);
	if (write(1, "ready\n", 6) != 6)
		abort();
	while (steps < STEPS_MAX && read(0, text, sizeof(text)) > 0) {
		for (int i = 0; i < EACH; i++) {
			maps();
			unmaps();
			moves();
			shrinks();
			protects();
		}
		steps++;
		say();
	}
	return 0;
}
