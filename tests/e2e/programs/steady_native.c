// SPDX-License-Identifier: Apache-2.0
/*
 * From the first line of stdin to the next one it keeps blocks on lines of different rates, two of
 * them of one size, and drops others at once; then it prints what is live of each line. What it has
 * allocated before "ready" is older. With an argument, each step also begins a new part: a child
 * that allocates ("fork"), or this program again ("exec"). "young": nothing is older.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OLDER 20000u
#define SLOTS 2000u
#define BATCH 50u

static size_t bytes[3], blocks[3];
static void *slots[SLOTS];

static unsigned int random_next(void)
{
	static unsigned int seed = 1;

	seed = seed * 1103515245 + 12345;
	return seed >> 8;
}

static void keep(int line, void *block, size_t size)
{
	memset(block, 1, size);
	bytes[line] += size;
	blocks[line]++;
}

static void work(unsigned int turn)
{
	size_t size = 400 + random_next() % 1200;
	void *block;

	for (int i = 0; i < 20; i++) {
		block = malloc(16 + random_next() % 600); // # line T
		*(volatile char *)block = 1;
		free(block);
	}
	block = malloc(56); // # line A
	keep(0, block, 56);
	if (turn % 3 == 0) {
		block = malloc(56); // # line B
		keep(1, block, 56);
	}
	if (turn % 10 == 0) {
		block = calloc(1, size); // # line C
		keep(2, block, size);
	}
	/* Others take the place of older blocks. */
	free(slots[turn % SLOTS]);
	slots[turn % SLOTS] = malloc(32); // # line S
	*(volatile char *)slots[turn % SLOTS] = 1;
}

static int is_asked(int timeout_ms)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	char line[3]; /* "go" */

	return poll(&in, 1, timeout_ms) == 1 && read(0, line, sizeof(line)) >= 0;
}

static void child_run(void)
{
	pid_t child = fork();

	if (!child) {
		for (unsigned int i = 0; i < 2000; i++)
			work(i);
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";
	unsigned int turn = 0;

	for (unsigned int i = 0; i < OLDER && strcmp(part, "young"); i++)
		*(volatile char *)malloc(56) = 1;
	for (unsigned int i = 0; i < SLOTS; i++)
		slots[i] = malloc(32);
	memset(bytes, 0, sizeof(bytes));
	puts("ready");
	fflush(stdout);
	is_asked(-1);
	do {
		for (unsigned int i = 0; i < BATCH; i++)
			work(turn++);
		if (!strcmp(part, "fork") && turn % (BATCH * 50) == 0)
			child_run();
	} while (!is_asked(1));
	if (!strcmp(part, "exec"))
		execl(argv[0], argv[0], NULL);
	printf("{\"A\": [%zu, %zu], \"B\": [%zu, %zu], \"C\": [%zu, %zu]}\n", bytes[0], blocks[0],
	       bytes[1], blocks[1], bytes[2], blocks[2]);
	fflush(stdout);
	is_asked(-1);
	return 0;
}
