/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses jemalloc from several threads. For each line that it reads it does something,
 * then prints what jemalloc itself counts, as a line of JSON: "look", "purge" (returns free pages),
 * "work" (its threads allocate and free from now on), "rest". usage: jemalloc_counts THREADS SCALE
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PREFIX
#define PREFIX
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#define NAME(name)  JOIN(PREFIX, name)

#define BLOCKS 20000u

extern void *NAME(malloc)(size_t);
extern void NAME(free)(void *);
extern size_t NAME(malloc_usable_size)(void *);
extern int NAME(posix_memalign)(void **, size_t, size_t);
extern int NAME(mallctl)(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static atomic_int working, resting;
static atomic_size_t live; /* bytes of blocks that it has, by their usable size */
static unsigned int thread_count, scale;

static size_t count_of(const char *name)
{
	size_t value = 0, size = sizeof(value);

	NAME(mallctl)(name, &value, &size, NULL, 0);
	return value;
}

static size_t size_of(unsigned int *seed)
{
	unsigned int kind = rand_r(seed) % 1000;

	return kind < 700   ? rand_r(seed) % 256
	       : kind < 980 ? rand_r(seed) % 4000
	       : kind < 997 ? rand_r(seed) % 60000
			    : rand_r(seed) % 3000000;
}

static void *block_new(unsigned int *seed)
{
	size_t bytes = size_of(seed) + 1;
	void *block;

	if (rand_r(seed) % 200 == 0 && !NAME(posix_memalign)(&block, 4096, bytes))
		return memset(block, 1, bytes);
	block = NAME(malloc)(bytes);
	return block ? memset(block, 1, bytes) : NULL;
}

static void *thread_run(void *number)
{
	unsigned int seed = 3 + (unsigned int)(uintptr_t)number, most = BLOCKS * scale / 100;
	void **blocks = calloc(most, sizeof(*blocks));

	for (unsigned int i = 0; i < most; i++)
		blocks[i] = block_new(&seed);
	for (unsigned int i = 0; i < most; i++)
		if (rand_r(&seed) % 3) {
			NAME(free)(blocks[i]);
			blocks[i] = NULL;
		} else {
			atomic_fetch_add(&live, NAME(malloc_usable_size)(blocks[i]));
		}
	for (;;) {
		unsigned int i = rand_r(&seed) % most;

		if (!atomic_load(&working)) {
			atomic_fetch_add(&resting, 1);
			while (!atomic_load(&working))
				usleep(1000);
			atomic_fetch_sub(&resting, 1);
		}
		/* Their sizes stay: what is counted before and after a reading is the same. */
		if (!blocks[i])
			continue;
		size_t bytes = NAME(malloc_usable_size)(blocks[i]);
		NAME(free)(blocks[i]);
		blocks[i] = memset(NAME(malloc)(bytes), 1, bytes);
	}
	return NULL;
}

static unsigned long rss(void)
{
	unsigned long total = 0, resident = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (file) {
		if (fscanf(file, "%lu %lu", &total, &resident) != 2)
			resident = 0;
		fclose(file);
	}
	return resident * 4096;
}

static void bins_print(void)
{
	unsigned int bins = 0;
	size_t size = sizeof(bins);
	char name[80];

	NAME(mallctl)("arenas.nbins", &bins, &size, NULL, 0);
	printf(", \"bins\": [");
	for (unsigned int i = 0; i < bins; i++) {
		size_t bytes, used, slabs;

		snprintf(name, sizeof(name), "arenas.bin.%u.size", i);
		bytes = count_of(name);
		snprintf(name, sizeof(name), "stats.arenas.4096.bins.%u.curregs", i);
		used = count_of(name);
		snprintf(name, sizeof(name), "stats.arenas.4096.bins.%u.curslabs", i);
		slabs = count_of(name);
		printf("%s[%zu, %zu, %zu]", i ? ", " : "", bytes, used, slabs);
	}
	printf("]");
}

static void counts_print(void)
{
	static const char *const names[] = {"allocated", "active", "metadata", "mapped",
					    "retained"};
	static const char *const of_arenas[] = {"pdirty", "pmuzzy", "tcache_bytes", "internal",
						"base"};
	uint64_t epoch = 1;
	char name[80];

	NAME(mallctl)("epoch", NULL, NULL, &epoch, sizeof(epoch));
	printf("{\"rss\": %lu, \"live\": %zu", rss(), atomic_load(&live));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(name, sizeof(name), "stats.%s", names[i]);
		printf(", \"%s\": %zu", names[i], count_of(name));
	}
	for (size_t i = 0; i < sizeof(of_arenas) / sizeof(of_arenas[0]); i++) {
		snprintf(name, sizeof(name), "stats.arenas.4096.%s", of_arenas[i]);
		printf(", \"%s\": %zu", of_arenas[i], count_of(name));
	}
	bins_print();
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static char line[64];
	pthread_t thread;

	thread_count = argc > 1 ? (unsigned int)atoi(argv[1]) : 4;
	scale = argc > 2 ? (unsigned int)atoi(argv[2]) : 100;
	setvbuf(stdin, NULL, _IONBF, 0);
	for (uintptr_t i = 0; i < thread_count; i++)
		pthread_create(&thread, NULL, thread_run, (void *)i);
	while (atomic_load(&resting) < (int)thread_count)
		usleep(1000);
	if (!NAME(mallctl))
		return 1;
	counts_print();
	while (fgets(line, sizeof(line), stdin)) {
		if (line[0] == 'p')
			NAME(mallctl)("arena.4096.purge", NULL, NULL, NULL, 0);
		if (line[0] == 'w' || line[0] == 'r')
			atomic_store(&working, line[0] == 'w');
		while (line[0] == 'r' && atomic_load(&resting) < (int)thread_count)
			usleep(1000);
		counts_print();
	}
	return 0;
}
