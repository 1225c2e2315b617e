/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that do nothing but malloc and free, below DEPTH calls that keep their frame pointers.
 * usage: pairs THREADS PAIRS [wait]    PAIRS each; wait: begins with a line on stdin.
 * Prints the seconds of the work.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEPTH       20
#define THREADS_MAX 64

static __attribute__((noinline)) void work(long pairs, int depth)
{
	if (depth)
		work(pairs, depth - 1);
	else
		while (pairs--) {
			void *volatile block = malloc(64);

			free(block);
		}
	__asm__ volatile("" ::: "memory"); /* the call above is no jump */
}

static void *thread_run(void *pairs)
{
	work(*(long *)pairs, DEPTH);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[1]) : 0, begun = 0, err = 0;
	long pairs = argc > 2 ? atol(argv[2]) : 0;
	struct timespec start, end;
	pthread_t ids[THREADS_MAX];

	if (threads < 1 || threads > THREADS_MAX || pairs < 1)
		return 2;
	if (argc > 3 && getchar() == EOF)
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (begun < threads && !err) {
		err = pthread_create(&ids[begun], NULL, thread_run, &pairs);
		begun += !err;
	}
	while (begun)
		pthread_join(ids[--begun], NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%.3f\n",
	       (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
	return !!err;
}
