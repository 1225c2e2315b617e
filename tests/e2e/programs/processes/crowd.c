/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many processes of one program. usage: crowd COUNT
 *
 * Says "ready", waits for a line. Then its i-th child takes i blocks of 100 bytes, from 1 on. When
 * all have, says the PIDs of the first and of the last one, and waits for its stdin's end, with
 * which all end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { GO, DONE, END, PIPES };
static int pipes[PIPES][2];
static void *volatile kept;

static int child(int number)
{
	char byte = 0;

	close(pipes[GO][1]);
	close(pipes[END][1]);
	if (read(pipes[GO][0], &byte, 1))
		return 1;
	for (int i = 0; i < number; i++)
		kept = malloc(100);
	if (write(pipes[DONE][1], &byte, 1) != 1)
		return 1;
	return read(pipes[END][0], &byte, 1) != 0;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1;
	pid_t pid = 0, first = 0;
	char byte;

	for (int i = 0; i < PIPES; i++)
		if (pipe(pipes[i]))
			return 1;
	for (int i = 1; i <= count; i++) {
		pid = fork();
		if (pid <= 0)
			_exit(pid ? 1 : child(i));
		if (i == 1)
			first = pid;
	}
	dprintf(1, "ready\n");
	while (read(0, &byte, 1) == 1 && byte != '\n')
		;
	close(pipes[GO][1]);
	for (int i = 0; i < count; i++)
		if (read(pipes[DONE][0], &byte, 1) != 1)
			return 1;
	dprintf(1, "%d %d\n", first, pid);
	while (read(0, &byte, 1) == 1)
		;
	return 0;
}
