/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills malloc's heaps with blocks of all ages in four threads, and prints, without allocating:
 *
 *	{"arena": …}	mallinfo2(), then "ready"
 *	at each line on stdin: "trim": malloc_trim(0), then the resident bytes before and after it
 *
 * With an argument, it runs on and allocates and frees until it is killed.
 */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define BLOCKS  20000
#define CHUNK   50

static void *blocks[THREADS][BLOCKS];
static pthread_barrier_t filled;
static int runs_on;

static void replace(unsigned int number, unsigned int which, unsigned int *seed)
{
	unsigned int kind = rand_r(seed) % 1000;
	size_t bytes = kind < 600   ? rand_r(seed) % 200
		       : kind < 990 ? rand_r(seed) % 3000
		       : kind < 998 ? rand_r(seed) % 60000
				    : 140000 + rand_r(seed) % 300000;

	free(blocks[number][which]);
	blocks[number][which] = malloc(bytes + 1);
	memset(blocks[number][which], 1, bytes + 1);
}

static void *fill(void *argument)
{
	unsigned int number = (unsigned int)(uintptr_t)argument, seed = number + 1;

	for (unsigned int i = 0; i < BLOCKS; i++)
		replace(number, i, &seed);
	/* Whole pages become free in some places, single blocks in others. */
	for (unsigned int i = 0; i < BLOCKS; i++)
		if (i / CHUNK % 3 == 0 || i % 7 == 0) {
			free(blocks[number][i]);
			blocks[number][i] = NULL;
		}
	pthread_barrier_wait(&filled);
	while (runs_on)
		replace(number, rand_r(&seed) % BLOCKS, &seed);
	while (number)
		pause();
	return NULL;
}

static unsigned long resident(void)
{
	static char text[8192];
	int fd = open("/proc/self/smaps_rollup", O_RDONLY);
	ssize_t got = read(fd, text, sizeof(text) - 1);
	char *line;

	close(fd);
	text[got > 0 ? got : 0] = '\0';
	line = strstr(text, "\nRss:");
	return line ? strtoul(line + 5, NULL, 10) * 1024 : 0;
}

static void say(const char *text)
{
	if (write(1, text, strlen(text)) < 0)
		_exit(1);
}

int main(int argc, char **argv)
{
	char text[512], line[16];
	struct mallinfo2 info;
	pthread_t thread;

	(void)argv;
	runs_on = argc > 1;
	pthread_barrier_init(&filled, NULL, THREADS + runs_on);
	for (uintptr_t i = (uintptr_t)!runs_on; i < THREADS; i++)
		pthread_create(&thread, NULL, fill, (void *)i);
	if (runs_on)
		pthread_barrier_wait(&filled);
	else
		fill(NULL);
	info = mallinfo2();
	snprintf(text, sizeof(text),
		 "{\"arena\": %zu, \"fordblks\": %zu, \"fsmblks\": %zu, \"keepcost\": %zu, "
		 "\"uordblks\": %zu, \"hblks\": %zu, \"hblkhd\": %zu}\nready\n",
		 info.arena, info.fordblks, info.fsmblks, info.keepcost, info.uordblks, info.hblks,
		 info.hblkhd);
	say(text);
	while (read(0, line, sizeof(line)) > 0) {
		unsigned long before = resident();

		malloc_trim(0);
		snprintf(text, sizeof(text), "[%lu, %lu]\n", before, resident());
		say(text);
	}
	return 0;
}
