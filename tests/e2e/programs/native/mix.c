/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that allocate, resize and free at the same time, beside blocks that stay. usage: mix
 * [THREADS [ROUNDS]]
 *
 * Prints "ready"; for each line on stdin starts its threads, waits for their end and prints what is
 * live as golden.py does; ends with its stdin. Each thread keeps its own blocks; the blocks that it
 * frees have been allocated by its neighbour.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_MAX 64
#define ROUNDS_MAX  100000
#define STEPS_MAX   32
#define PASSED      16
#define NOINLINE    __attribute__((noinline, noclone))

static int threads = 8, rounds = 1000, steps;
static void **kept[THREADS_MAX], **grown[THREADS_MAX];
static void *passed[THREADS_MAX][PASSED];
static pthread_barrier_t barrier;

static void *checked(void *block)
{
	if (!block)
		abort();
	return block;
}

/* Every round keeps one block, every fourth another one that a realloc() has moved or grown. */
NOINLINE static void round_run(int me, int i)
{
	void *block = checked(malloc(40)); /* # line SHORT */
	void **neighbour = &passed[(me + 1) % threads][i % PASSED];

	kept[me][i] = checked(malloc(100)); /* # line KEPT */
	free(block);
	block = checked(malloc(24)); /* # line SMALL */
	if (i % 4 == 0)
		grown[me][i / 4] = checked(realloc(block, 900)); /* # line GROWN */
	else
		free(block);
	block = checked(malloc(300)); /* # line PASSED */
	free(__atomic_exchange_n(neighbour, block, __ATOMIC_ACQ_REL));
}

NOINLINE static void *thread_run(void *argument)
{
	int me = (int)(long)argument;

	pthread_barrier_wait(&barrier);
	for (int i = 0; i < rounds; i++)
		round_run(me, steps * rounds + i);
	return NULL;
}

static void work(void)
{
	pthread_t ids[THREADS_MAX];

	pthread_barrier_init(&barrier, NULL, (unsigned int)threads);
	for (long i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, thread_run, (void *)i))
			abort();
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	pthread_barrier_destroy(&barrier);
	steps++;
}

static void account(void)
{
	long done = (long)steps * rounds, passes = 0;
	long keeps = threads * done, grows = threads * ((done + 3) / 4);

	for (int i = 0; i < threads; i++)
		for (int k = 0; k < PASSED; k++)
			passes += passed[i][k] != NULL;
	printf("{\"KEPT\": [%ld, %ld], \"GROWN\": [%ld, %ld], \"PASSED\": [%ld, %ld], \"SHORT\": "
	       "[0, 0], "
	       "\"SMALL\": [0, 0]}\n",
	       keeps * 100, keeps, grows * 900, grows, passes * 300, passes);
}

int main(int argc, char **argv)
{
	size_t most;
	char text[100];

	if (argc > 1)
		threads = atoi(argv[1]);
	if (argc > 2)
		rounds = atoi(argv[2]);
	if (threads < 1 || threads > THREADS_MAX || rounds < 1 || rounds > ROUNDS_MAX)
		return 2;
	most = (size_t)rounds * STEPS_MAX;
	for (int i = 0; i < threads; i++) {
		kept[i] = checked(calloc(most, sizeof(void *)));
		grown[i] = checked(calloc(most, sizeof(void *)));
	}
	setvbuf(stdout, NULL, _IONBF, 0);
	puts("ready");
	while (steps < STEPS_MAX && read(0, text, sizeof(text)) > 0) {
		work();
		account();
	}
	return 0;
}
