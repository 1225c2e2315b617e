/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that are requested below calls of many depths, by two threads. Prints how many there are.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 1000
#define DEPTHS 20

static void *volatile last;

__attribute__((noinline)) static void descend(int depth)
{
	if (depth)
		descend(depth - 1);
	else
		last = malloc(48);
	__asm__ volatile("" ::: "memory"); /* the call above is no jump */
}

static void *thread_run(void *unused)
{
	for (int i = 0; i < ROUNDS; i++)
		descend(i % DEPTHS);
	return unused;
}

int main(void)
{
	pthread_t thread;

	thread_run(NULL);
	if (pthread_create(&thread, NULL, thread_run, NULL))
		return 1;
	pthread_join(thread, NULL);
	printf("%d\n", 2 * ROUNDS);
	return 0;
}
