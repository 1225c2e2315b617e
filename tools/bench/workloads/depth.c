/* SPDX-License-Identifier: Apache-2.0 */
/*
 * malloc and free below a number of frames without frame pointers. Prints the CPU time of a pair in
 * nanoseconds: user and system time of this thread, since the machine may be busy. The first half
 * of the rounds is not measured: a tracer may attach meanwhile.
 *
 * usage: depth FRAMES ROUNDS    beyond main; compiled with -fomit-frame-pointer
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *volatile kept;

static double cpu_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

__attribute__((noinline)) static void pairs(long rounds)
{
	for (long i = 0; i < rounds; i++) {
		kept = malloc(64);
		free(kept);
	}
}

__attribute__((noinline)) static double descend(int frames, long rounds)
{
	/* Work after the call, and frames of different sizes: no tail call, no loop. */
	volatile char frame[8 + 16 * (frames % 7)];
	double ns;

	frame[0] = 1;
	if (frames > 0) {
		ns = descend(frames - 1, rounds);
	} else {
		pairs(rounds / 2);
		ns = cpu_ns();
		pairs(rounds / 2);
		ns = cpu_ns() - ns;
	}
	return ns * frame[0];
}

int main(int argc, char **argv)
{
	long rounds = argc > 2 ? atol(argv[2]) : 200000;
	int frames = argc > 1 ? atoi(argv[1]) : 16;

	/* main, descend() and pairs() are three of them. */
	printf("%.1f\n", descend(frames - 3, rounds) / (double)(rounds / 2));
	return 0;
}
