/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lives on an allocator that replaces malloc, and prints what that counts itself.
 * usage: replaced [THREADS]
 *
 * THREADS threads fill the heap and free a part of it, and then rest with their caches. The program
 * says "ready", and reads lines: "load" begins to allocate and free in two threads, without an end;
 * "work" does so at a moderate rate; "rest" ends both, and says what their lines have; "free" frees
 * nine blocks of ten; "purge" returns free pages. To each it answers by a line of JSON: its blocks
 * and their usable bytes (without those of "load" and "work"), resident bytes, and what the
 * allocator's statistics say.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS       20000
#define THREADS_MAX 16
#define LOADS       2

struct slot {
	void *block;
	size_t bytes; /* as they were asked for */
	int line;
};

int MallocExtension_GetNumericProperty(const char *, size_t *) __attribute__((weak));
void MallocExtension_ReleaseFreeMemory(void) __attribute__((weak));
void mi_collect(bool) __attribute__((weak));

static const char *const properties[] = {
	"generic.current_allocated_bytes",
	"generic.heap_size",
	"tcmalloc.pageheap_free_bytes",
	"tcmalloc.pageheap_unmapped_bytes",
	"tcmalloc.current_total_thread_cache_bytes",
	"tcmalloc.central_cache_free_bytes",
	"tcmalloc.transfer_cache_free_bytes",
};

static struct slot blocks[THREADS_MAX][SLOTS], loaded[LOADS][SLOTS];
static int threads = 4, paused_us;
static atomic_int is_resting;
static pthread_barrier_t barrier, rest;

static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void drop(struct slot *slot)
{
	free(slot->block);
	slot->block = NULL;
}

static void churn(struct slot *slots, uint32_t *state, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		struct slot *slot = &slots[next(state) % SLOTS];
		size_t bytes = 1 + next(state) % (next(state) % 512 ? 1500 : 700000);

		if (slot->block && next(state) % 4) {
			drop(slot);
			continue;
		}
		if (next(state) % 8) {
			slot->block = realloc(slot->block, bytes); // # line R
			slot->bytes = bytes;
			slot->line = 0;
		}
		if (!slot->block) {
			slot->bytes = (bytes + 63) / 64 * 64;
			slot->block = aligned_alloc(64, slot->bytes); // # line G
			slot->line = 1;
		}
		memset(slot->block, 1, malloc_usable_size(slot->block));
	}
}

static void *fill(void *number)
{
	uint32_t state = 2463534242u + (uint32_t)(uintptr_t)number;

	churn(blocks[(uintptr_t)number], &state, 300000);
	/* Blocks of another thread are freed, too. */
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < SLOTS; i += 7)
		drop(&blocks[((uintptr_t)number + 1) % (unsigned int)threads][i]);
	pthread_barrier_wait(&barrier);
	/* What mimalloc has belongs to the thread that allocated it. */
	for (;;) {
		pthread_barrier_wait(&barrier);
		if (mi_collect)
			mi_collect(true);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void *load(void *number)
{
	uint32_t state = 77 + (uint32_t)(uintptr_t)number;

	while (!is_resting) {
		churn(loaded[(uintptr_t)number], &state, paused_us ? 20 : 1000);
		if (paused_us)
			usleep((useconds_t)paused_us);
	}
	pthread_barrier_wait(&rest);
	for (;;)
		pause();
	return NULL;
}

static long resident(void)
{
	long pages = 0, rss = 0;
	char text[128] = "";
	FILE *file = fopen("/proc/self/statm", "r");

	if (!file || !fgets(text, sizeof(text), file) || sscanf(text, "%ld %ld", &pages, &rss) != 2)
		exit(3);
	fclose(file);
	return rss * 4096;
}

/* What is live of the two lines. */
static void tell_loaded(void)
{
	size_t bytes[2] = {0}, counts[2] = {0};

	for (int t = 0; t < LOADS; t++)
		for (int i = 0; i < SLOTS; i++)
			if (loaded[t][i].block) {
				bytes[loaded[t][i].line] += loaded[t][i].bytes;
				counts[loaded[t][i].line]++;
			}
	printf(", \"loaded\": {\"R\": [%zu, %zu], \"G\": [%zu, %zu]}", bytes[0], counts[0],
	       bytes[1], counts[1]);
}

static void tell(void)
{
	size_t count = 0, usable = 0, value;

	for (int t = 0; t < threads; t++)
		for (int i = 0; i < SLOTS; i++)
			if (blocks[t][i].block) {
				count++;
				usable += malloc_usable_size(blocks[t][i].block);
			}
	printf("{\"blocks\": %zu, \"usable\": %zu, \"rss\": %ld", count, usable, resident());
	for (size_t i = 0;
	     MallocExtension_GetNumericProperty && i < sizeof(properties) / sizeof(*properties);
	     i++)
		if (MallocExtension_GetNumericProperty(properties[i], &value))
			printf(", \"%s\": %zu", properties[i], value);
	if (is_resting)
		tell_loaded();
	puts("}");
	fflush(stdout);
}

static void start(void *(*function)(void *), int count)
{
	pthread_t thread;

	for (int i = 0; i < count; i++)
		if (pthread_create(&thread, NULL, function, (void *)(uintptr_t)i))
			exit(1);
}

static void purge(void)
{
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	if (mi_collect)
		mi_collect(true);
	if (MallocExtension_ReleaseFreeMemory)
		MallocExtension_ReleaseFreeMemory();
}

static void command(const char *line)
{
	paused_us = !strcmp(line, "work\n") ? 500 : paused_us;
	if (!strcmp(line, "load\n") || !strcmp(line, "work\n"))
		start(load, LOADS);
	if (!strcmp(line, "rest\n")) {
		is_resting = 1;
		pthread_barrier_wait(&rest);
	}
	for (int t = 0; !strcmp(line, "free\n") && t < threads; t++)
		for (int i = 0; i < SLOTS; i++)
			if (i % 10)
				drop(&blocks[t][i]);
	if (!strcmp(line, "purge\n"))
		purge();
	tell();
}

int main(int argc, char **argv)
{
	char line[16];

	if (argc > 1)
		threads = atoi(argv[1]);
	if (threads < 1 || threads > THREADS_MAX)
		return 2;
	pthread_barrier_init(&barrier, NULL, (unsigned int)threads + 1);
	pthread_barrier_init(&rest, NULL, LOADS + 1);
	start(fill, threads);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	setvbuf(stdout, NULL, _IOLBF, 4096);
	puts("ready");
	while (fgets(line, sizeof(line), stdin))
		command(line);
	return 0;
}
