/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first thread ends at the argument's word: "begin", at the beginning; "read", when stdin has a
 * line. Another thread goes on to keep 1,000 blocks, and ends with stdin.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *volatile kept[1000];
static pthread_t first;
static char line[80];

static void *work(void *argument)
{
	(void)argument;
	pthread_join(first, NULL);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
			kept[i] = malloc(1000);
		puts("done");
		fflush(stdout);
	}
	_exit(0);
}

int main(int count, char **arguments)
{
	pthread_t thread;

	first = pthread_self();
	if (count != 2 || pthread_create(&thread, NULL, work, NULL))
		return 1;
	if (!strcmp(arguments[1], "read")) {
		puts("begun");
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return 1;
	}
	pthread_exit(NULL);
}
