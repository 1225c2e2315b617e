/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many blocks of malloc's of one size, and as many that die; with "busy" it goes on like that until
 * a line comes. Speaks as golden.py does.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 40000
#define BYTES 250

static void *kept[COUNT];

static void renew(size_t i)
{
	free(malloc(BYTES));
	free(kept[i]);
	kept[i] = malloc(BYTES);
}

static void wait_line(void)
{
	char text[100];

	if (read(0, text, sizeof(text)) <= 0)
		exit(0);
}

int main(int argc, char **argv)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};
	int busy = argc > 1 && !strcmp(argv[argc - 1], "busy");

	setvbuf(stdout, NULL, _IONBF, 0);
	puts("ready");
	while (busy && !poll(&input, 1, 0))
		for (size_t i = 0; i < COUNT; i++)
			renew(i);
	wait_line();
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < COUNT; i++)
			renew(i);
	printf("{\"M\": [%d, %d]}\n", COUNT * BYTES, COUNT);
	wait_line();
	return 0;
}
