/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are requested in functions which are inlined into others. Keeps them. */
#include <stdlib.h>

#define ALWAYS static inline __attribute__((always_inline))

static void *volatile kept[100];

ALWAYS void *inner(size_t bytes)
{
	return malloc(bytes); /* # line inner */
}

ALWAYS void *middle(size_t bytes)
{
	return inner(bytes + 1); /* # line middle */
}

__attribute__((noinline)) static void outer(int i)
{
	kept[i] = middle(100);             /* # line outer */
	__asm__ volatile("" ::: "memory"); /* the call above is no jump */
}

int main(void)
{
	for (int i = 0; i < 100; i++)
		outer(i); /* # line main */
	return 0;
}
