// SPDX-License-Identifier: Apache-2.0
/*
 * Links a second arena into glibc's list of arenas, with as many heaps as argv says. Each of them
 * is a mapping of the same 64 MiB, which are full of chunks of 32 bytes. Prints "ready"; ends with
 * its stdin. glibc 2.35 to 2.41, x86-64.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEAP  (64ul << 20)
#define CHUNK (32 | 1) /* its size, and PREV_INUSE */

/* of struct malloc_state, its size and that of struct heap_info */
enum { TOP = 96, BINS = 112, NEXT = 2160, SYSTEM = 2184, ARENA = 2208, INFO = 48 };

/* The first page is each heap's own. */
static void heap_begin(uint64_t *heap, uint64_t arena, uint64_t before, uint64_t at)
{
	uint64_t odd = (4096 - at) % 32;

	heap[0] = arena;
	heap[1] = before;
	heap[2] = HEAP;
	if (odd) { /* so that they meet the next page's */
		heap[at / 8 + 1] = CHUNK + 16;
		at += 48;
	}
	for (; at < 4096; at += 32)
		heap[at / 8 + 1] = CHUNK;
}

int main(int argc, char **argv)
{
	const uint64_t base = 0x100000000000ul, arena = base + INFO;
	long count = argc > 1 ? atol(argv[1]) : 1;
	uint64_t *block = malloc(3000), *content, *next, main_arena;
	void *volatile behind = malloc(3000);
	int fd = memfd_create("heap", 0);
	char *at = (char *)arena;

	free(block); /* into the unsorted list: its first word leads to main_arena */
	main_arena = ((volatile uint64_t *)block)[0] - TOP;
	(void)behind;
	if (ftruncate(fd, HEAP))
		return 2;
	content = mmap(NULL, HEAP, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (uint64_t i = 0; i < HEAP / 8; i += 4)
		content[i + 1] = CHUNK;
	for (long i = 0; i < count; i++) {
		uint64_t start = base + (uint64_t)i * HEAP;
		uint64_t *heap = mmap((void *)start, HEAP, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0);

		if (heap == MAP_FAILED)
			return 2;
		heap_begin(heap, arena, i ? start - HEAP : 0, i ? INFO : INFO + ARENA);
		for (uint64_t page = 4096; page < HEAP; page += 4096)
			(void)*(volatile char *)(start + page);
	}
	memset(at, 0, ARENA);
	*(uint64_t *)(at + TOP) = base + (uint64_t)count * HEAP - 32;
	for (uint64_t i = 0; i < 127; i++)
		for (uint64_t k = 0; k < 2; k++)
			((uint64_t *)(at + BINS))[2 * i + k] = arena + BINS + 16 * i - 16;
	*(uint64_t *)(at + NEXT) = main_arena;
	*(uint64_t *)(at + SYSTEM) = (uint64_t)count * HEAP;
	next = (uint64_t *)(main_arena + NEXT);
	*next = arena;
	puts("ready");
	fflush(stdout);
	while (read(0, &fd, 1) > 0)
		continue;
	_exit(0);
}
