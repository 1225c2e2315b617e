/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that keeps account of its own blocks: for each marked line, bytes and blocks that live.
 * "ready"; then for each line on stdin it does more, and prints its account as JSON, with what
 * mallinfo2 says has come since (without tcache, see test_native.py).
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS  4
#define EACH     500
#define NOINLINE __attribute__((noinline, noclone))

struct account {
	const char *mark;
	size_t bytes, blocks;
} accounts[32];

static void *kept[64];
static int kept_count;
static void *theirs[THREADS][EACH];
static void *volatile sink;

static void account(const char *mark, long bytes, long blocks)
{
	struct account *entry = accounts;

	while (entry->mark && strcmp(entry->mark, mark))
		entry++;
	entry->mark = mark;
	entry->bytes += (size_t)bytes;
	entry->blocks += (size_t)blocks;
}

static void keep(const char *mark, void *block, size_t bytes)
{
	if (!block)
		abort();
	kept[kept_count++] = block;
	account(mark, (long)bytes, 1);
}

NOINLINE static void family(void)
{
	void *block;

	keep("MALLOC", malloc(101), 101);             /* # line MALLOC */
	keep("CALLOC", calloc(7, 11), 77);            /* # line CALLOC */
	keep("REALLOC", realloc(NULL, 53), 53);       /* # line REALLOC */
	keep("ARRAY", reallocarray(NULL, 3, 19), 57); /* # line ARRAY */
	keep("ALIGNED", aligned_alloc(64, 640), 640); /* # line ALIGNED */
	keep("MEMALIGN", memalign(32, 77), 77);       /* # line MEMALIGN */
	keep("VALLOC", valloc(33), 33);               /* # line VALLOC */
	keep("PVALLOC", pvalloc(44), 44);             /* # line PVALLOC */
	keep("ZERO", malloc(0), 0);                   /* # line ZERO */
	keep("BIG", malloc(300000), 300000);          /* # line BIG */
	if (posix_memalign(&block, 128, 1000))        /* # line POSIX */
		abort();
	keep("POSIX", block, 1000);
	block = malloc(10);
	keep("GROWN", realloc(block, 5000), 5000); /* # line GROWN */
	block = malloc(4000);
	keep("SHRUNK", realloc(block, 40), 40); /* # line SHRUNK */
}

/* What leaves nothing, or leaves things as they were. */
NOINLINE static void failures(void)
{
	volatile size_t huge = (size_t)1 << 60;
	void *block = malloc(21); /* # line FAILED */

	if (malloc(huge) || realloc(block, huge) || reallocarray(block, huge, 16) ||
	    reallocarray(block, huge << 3, 2) || calloc(huge, 16) ||
	    !posix_memalign((void **)&sink, 24, 8) || !posix_memalign((void **)&sink, 64, huge))
		abort();
	keep("FAILED", block, 21);
	sink = realloc(malloc(10), 0);
	sink = malloc(30);
	free(sink);
	free(NULL);
}

NOINLINE static void *thread_run(void *argument)
{
	void **own = argument;

	for (int i = 0; i < EACH; i++)
		own[i] = malloc(16 + (size_t)i); /* # line THREAD */
	for (int i = 0; i < EACH; i += 5)
		own[i] = realloc(own[i], 2000); /* # line MOVED */
	return NULL;
}

NOINLINE static void threads(void)
{
	pthread_t ids[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&ids[i], NULL, thread_run, theirs[i]))
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	/* Every third is freed by another thread than the one that has made it. */
	for (int i = 0; i < THREADS; i++) {
		for (int j = 0; j < EACH; j++) {
			if (j % 3 == 0)
				free(theirs[i][j]);
			else if (j % 5 == 0)
				account("MOVED", 2000, 1);
			else
				account("THREAD", 16 + j, 1);
		}
	}
}

NOINLINE static void release(void)
{
	static const char *const marks[] = {"MALLOC", "CALLOC"};
	static const long bytes[] = {101, 77};

	for (int i = 0; i < 2; i++) {
		free(kept[i]);
		account(marks[i], -bytes[i], -1);
	}
}

static size_t malloc_says(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

int main(void)
{
	static char in[4096], out[65536];
	static void (*const steps[])(void) = {family, failures, threads, release};
	size_t before;
	char line[16];

	setvbuf(stdin, in, _IOFBF, sizeof(in));
	setvbuf(stdout, out, _IOFBF, sizeof(out));
	puts("ready");
	fflush(stdout);
	before = malloc_says();
	for (int i = 0; fgets(line, sizeof(line), stdin); i++) {
		if (i < 4)
			steps[i]();
		printf("{\"mallinfo\": [%zd, 0]", (ssize_t)(malloc_says() - before));
		for (struct account *entry = accounts; entry->mark; entry++)
			printf(", \"%s\": [%zu, %zu]", entry->mark, entry->bytes, entry->blocks);
		puts("}");
		fflush(stdout);
	}
	return 0;
}
