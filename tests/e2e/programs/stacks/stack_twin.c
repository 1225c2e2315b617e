/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two builds of it with another FRAME have equal code at equal addresses, but for the size of a
 * frame. Waits for a line, requests blocks below that frame, calls exec with its arguments if it
 * has some, and ends after a second line.
 */
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static void *kept[200];

NOINLINE void *inner(size_t bytes)
{
	void *block = malloc(bytes);

	__asm__ volatile("" : : "r"(block) : "memory");
	return block;
}

NOINLINE void *middle(size_t bytes)
{
	volatile char frame[FRAME];
	void *block;

	frame[0] = 1;
	block = inner(bytes);
	frame[FRAME - 1] = 2;
	return block;
}

static void line_read(void)
{
	char byte = 0;

	while (read(0, &byte, 1) == 1 && byte != '\n')
		;
}

int main(int argc, char **argv)
{
	line_read();
	for (int i = 0; i < 200; i++)
		kept[i] = middle(1000);
	if (argc > 1)
		execv(argv[1], argv + 1);
	line_read();
	return kept[0] == NULL;
}
