/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that come and go as fast as the machine lets them: fork, exec, exit.
 * usage: forks AT_ONCE TOTAL PROGRAM    Prints the seconds of the work.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long at_once = argc > 3 ? atol(argv[1]) : 0, total = argc > 3 ? atol(argv[2]) : 0,
	     running = 0;
	struct timespec start, end;

	if (at_once < 1)
		return 2;
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (total || running) {
		int status = 0;

		if (total && running < at_once) {
			pid_t pid = fork();

			if (!pid) {
				execv(argv[3], argv + 3);
				_exit(127);
			}
			if (pid < 0)
				return 1;
			total--;
			running++;
			continue;
		}
		if (wait(&status) < 0 || status)
			return 1;
		running--;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%.3f\n",
	       (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
	return 0;
}
