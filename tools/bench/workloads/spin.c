/* SPDX-License-Identifier: Apache-2.0 */
/* Computes without system calls. usage: spin ROUNDS Prints the seconds of the work. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 0;
	struct timespec start, end;
	volatile uint64_t sink;
	uint64_t x = 1;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (rounds-- > 0) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	sink = x;
	(void)sink;
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%.3f\n",
	       (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
	return 0;
}
