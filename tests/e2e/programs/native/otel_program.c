/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates through a producer of otel_memory: its own (-DPRODUCER), or that of the library in
 * argv[1], which it opens at the second line on stdin; or (-DPLAIN) by malloc. "ready"; after each
 * line on stdin its account of live samples, as JSON: for each mark bytes and blocks, then how many
 * samples they are, and the semaphores. After "fork" a child does the same first.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "otel_sampler.h"

#define KEPT  1000
#define MARKS 2

static const char *const marks[MARKS] = {"SMALL", "LARGE"};
static void *kept[KEPT];
static int kept_count, wanted;
static void *plain;

static void *(*library_malloc)(size_t bytes, int mark);
static void (*library_free)(void *address);
static void (*library_sum)(int mark, size_t *bytes, double *blocks, int *count);
static unsigned int (*library_listeners)(void);

#ifdef PRODUCER
NOINLINE static void *own_malloc(size_t bytes, int mark)
{
	void *address = malloc(bytes);
	size_t weight;

	if (sample_take(address, bytes, mark, &weight))
		PROBE_ALLOC(address, bytes, weight);
	return address;
}

NOINLINE static void own_free(void *address)
{
	if (sample_drop(address))
		PROBE_FREE(address);
	PROBE_MMAP(address, 4096ul);
	free(address);
}

static unsigned int own_listeners(void)
{
	return (unsigned int)otel_memory_alloc_semaphore << 16 | otel_memory_free_semaphore;
}

static void producer_find(void)
{
	library_malloc = own_malloc;
	library_free = own_free;
	library_sum = samples_sum;
	library_listeners = own_listeners;
}
#elif defined(PLAIN)
NOINLINE static void *plain_malloc(size_t bytes, int mark)
{
	(void)mark;
	return malloc(bytes); /* # line CALL */
}

static void producer_find(void)
{
	library_malloc = plain_malloc;
	library_free = free;
}
#else
static void producer_find(void)
{
}
#endif

static void library_open(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	library_malloc = (void *(*)(size_t, int))dlsym(library, "library_malloc");
	library_free = (void (*)(void *))dlsym(library, "library_free");
	library_sum = (void (*)(int, size_t *, double *, int *))dlsym(library, "library_sum");
	library_listeners = (unsigned int (*)(void))dlsym(library, "library_listeners");
}

NOINLINE static void *small_new(void)
{
	void *block = library_malloc(3000, 0); /* # line SMALL */

	return block;
}

NOINLINE static void *large_new(void)
{
	void *block = library_malloc(100001, 1); /* # line LARGE */

	return block;
}

/* Half of what is allocated is freed again. */
static void work(void)
{
	for (int i = 0; i < 200; i++) {
		library_free(small_new());
		library_free(large_new());
		if (kept_count < KEPT) {
			kept[kept_count++] = small_new();
			kept[kept_count++] = large_new();
		}
	}
	for (int i = 0; i < kept_count / 4; i++) {
		library_free(kept[i]);
		kept[i] = NULL;
	}
}

static void account_print(void)
{
	size_t bytes;
	double blocks;
	int count, all = 0;
	unsigned int listeners = library_listeners ? library_listeners() : 0;

	printf("{");
	for (int i = 0; library_sum && i < MARKS; i++) {
		library_sum(i, &bytes, &blocks, &count);
		printf("\"%s\": [%zu, %.0f], ", marks[i], bytes, blocks);
		all += count;
	}
	printf("\"samples\": [%d, 0], \"semaphores\": [%u, %u]}\n", all, listeners >> 16,
	       listeners & 0xffff);
	fflush(stdout);
}

NOINLINE static void *plain_new(void)
{
	return malloc(777); /* # line PLAIN */
}

int main(int argc, char **argv)
{
	char line[16];
	int child = 0;

	producer_find();
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "fork\n")) {
			child = !fork();
			if (!child)
				wait(NULL);
		}
		if (argc > 1 && ++wanted == 2)
			library_open(argv[1]);
		plain = plain_new();
		if (library_malloc && strcmp(line, "look\n"))
			work();
		account_print();
		if (child)
			_exit(0);
	}
	return plain == NULL;
}
