/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that lives on malloc and its kin, and keeps books. usage: allocator [THREADS [ROUNDS]]
 *
 * Speaks as golden.py does: "ready" and a line of JSON, then for each line on its stdin some work
 * and another line:
 *
 * 	own		bytes that were asked for and still live, and their number, by its own books
 * 	usable		bytes that the allocator made of them (malloc_usable_size), and their number
 * 	allocator	bytes that the allocator in use says it has handed out to the whole program,
 * 			and which one it is: 0 none that we could ask, 1 the C library, 2 jemalloc,
 * 			3 tcmalloc, 4 mimalloc
 *
 * With one thread the work is done by the first, the only one whose heap mimalloc lets us walk.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS       20000
#define MAX_THREADS 64

struct slot {
	void *block;
	size_t bytes;
};

/* Of whichever allocator is there. */
int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
int MallocExtension_GetNumericProperty(const char *, size_t *) __attribute__((weak));
void *mi_heap_get_default(void) __attribute__((weak));
bool mi_heap_visit_blocks(const void *, bool,
			  bool (*)(const void *, const void *, void *, size_t, void *), void *)
	__attribute__((weak));
#ifdef __GLIBC__
struct mallinfo2 mallinfo2(void) __attribute__((weak));
#endif

static struct slot books[MAX_THREADS][SLOTS]; /* not on the heap that is watched */
static int threads = 1, rounds = 100000;

static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* One of every way to ask for a block. */
static void *obtain(uint32_t way, size_t bytes, size_t *asked)
{
	void *block = NULL;

	*asked = bytes;
	switch (way % 8) {
	case 0:
		*asked = bytes / 8 * 8;
		return calloc(bytes / 8, 8);
	case 1:
		return posix_memalign(&block, 64, bytes) ? NULL : block;
	case 2:
		*asked = (bytes + 31) / 32 * 32;
		return aligned_alloc(32, *asked);
	case 3:
		return memalign(128, bytes);
	case 4:
		*asked = bytes / 4 * 4;
		return reallocarray(NULL, bytes / 4, 4);
	default:
		return malloc(bytes);
	}
}

static void *work(void *argument)
{
	struct slot *slots = argument;
	uint32_t state = 2463534242u + (uint32_t)(slots - books[0]);

	for (int i = 0; i < rounds; i++) {
		struct slot *slot = &slots[next(&state) % SLOTS];
		size_t bytes = 16 + next(&state) % (next(&state) % 64 ? 1000 : 100000);

		if (!slot->block) {
			slot->block = obtain(next(&state), bytes, &slot->bytes);
		} else if (next(&state) % 3) {
			free(slot->block);
			slot->block = NULL;
		} else {
			slot->block = realloc(slot->block, bytes);
			slot->bytes = bytes;
		}
		if (slot->block)
			memset(slot->block, 1, slot->bytes < 64 ? slot->bytes : 64);
	}
	return NULL;
}

static bool add_block(const void *heap, const void *area, void *block, size_t bytes, void *sum)
{
	(void)heap, (void)area;
	if (block)
		*(long long *)sum += (long long)bytes;
	return true;
}

static long long allocator_bytes(int *which)
{
	size_t value = 0, size = sizeof(value);
	uint64_t epoch = 1;
	long long sum = 0;

	if (mallctl) {
		*which = 2;
		mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
		mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch));
		return mallctl("stats.allocated", &value, &size, NULL, 0) ? -1 : (long long)value;
	}
	if (MallocExtension_GetNumericProperty) {
		*which = 3;
		return MallocExtension_GetNumericProperty("generic.current_allocated_bytes", &value)
			       ? (long long)value
			       : -1;
	}
	if (mi_heap_get_default && mi_heap_visit_blocks) {
		*which = 4;
		return mi_heap_visit_blocks(mi_heap_get_default(), true, add_block, &sum) ? sum
											  : -1;
	}
#ifdef __GLIBC__
	if (mallinfo2) {
		struct mallinfo2 info = mallinfo2();

		*which = 1;
		return (long long)info.uordblks + (long long)info.hblkhd;
	}
#endif
	*which = 0;
	return 0;
}

static void tell(void)
{
	long long bytes = 0, blocks = 0, usable = 0, says;
	char line[300];
	int which;

	for (int t = 0; t < threads; t++)
		for (int i = 0; i < SLOTS; i++)
			if (books[t][i].block) {
				bytes += (long long)books[t][i].bytes;
				usable += (long long)malloc_usable_size(books[t][i].block);
				blocks++;
			}
	says = allocator_bytes(&which);
	int length = snprintf(
		line, sizeof(line),
		"{\"own\": [%lld, %lld], \"usable\": [%lld, %lld], \"allocator\": [%lld, %d]}\n",
		bytes, blocks, usable, blocks, says, which);
	if (write(1, line, (size_t)length) != length)
		exit(1);
}

static void work_all(void)
{
	pthread_t ids[MAX_THREADS];

	if (threads == 1) {
		work(books[0]);
		return;
	}
	for (int t = 0; t < threads; t++)
		if (pthread_create(&ids[t], NULL, work, books[t]))
			exit(1);
	for (int t = 0; t < threads; t++)
		pthread_join(ids[t], NULL);
}

int main(int argc, char **argv)
{
	char byte;

	if (argc > 1)
		threads = atoi(argv[1]);
	if (argc > 2)
		rounds = atoi(argv[2]);
	if (threads < 1 || threads > MAX_THREADS)
		return 2;
	free(malloc(1)); /* an allocator may make itself at the first request */
	if (write(1, "ready\n", 6) != 6)
		return 1;
	tell();
	while (read(0, &byte, 1) == 1) {
		if (byte != '\n')
			continue;
		work_all();
		tell();
	}
	return 0;
}
