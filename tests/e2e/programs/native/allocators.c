/* SPDX-License-Identifier: Apache-2.0 */
/* As allocators.cc, of a C library alone, and of one that may be linked statically. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

static void *volatile kept[10000]; /* volatile, or the compiler drops what nobody reads */
static size_t count, bytes;

static void keep(void *block, size_t size)
{
	kept[count++] = block;
	bytes += size;
}

int main(void)
{
	char line[64];
	void *block;

	setvbuf(stdout, NULL, _IONBF, 0); /* no block of stdio's */
	setvbuf(stdin, NULL, _IONBF, 0);
	puts("ready");
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (size_t i = 1; i < 6000; i += 13) {
		keep(malloc(i), i);
		keep(calloc(3, i), 3 * i);
		keep(realloc(malloc(i), 2 * i + 5), 2 * i + 5);
		keep(realloc(malloc(9 * i + 1), i), i);
		keep(reallocarray(malloc(1), 3, i), 3 * i);
		if (posix_memalign(&block, 64, i))
			return 1;
		keep(block, i);
		keep(aligned_alloc(32, 32 * i), 32 * i);
		keep(memalign(128, i), i);
		keep(valloc(i), i);
		free(malloc(i));
		free(calloc(i, 2));
	}
	printf("{\"kept\": [%zu, %zu]}\n", bytes, count);
	return !fgets(line, sizeof(line), stdin);
}
