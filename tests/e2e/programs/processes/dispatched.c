/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has its system calls sent to itself as SIGSYS ("begin": from the beginning; "later": once stdin
 * has a line), and allocates without making any. Ends with status 99 at one that it does not know.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static volatile char selector;
static char line[80];
static void *volatile kept[2000];

static void called(int number, siginfo_t *info, void *context)
{
	(void)number, (void)info, (void)context;
	selector = 0;
	_exit(99);
}

static int dispatch(void)
{
	struct sigaction action = {.sa_sigaction = called, .sa_flags = SA_SIGINFO};

	return sigaction(SIGSYS, &action, NULL) ||
	       prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector);
}

/* Resized blocks, too: their old ones are freed. */
static void allocate(int from)
{
	selector = 1;
	for (int i = from; i < from + 1000; i++) {
		kept[i] = malloc(100);
		kept[i] = realloc(kept[i], 200);
		free(calloc(3, 7));
	}
	selector = 0;
}

int main(int count, char **arguments)
{
	if (count != 2)
		return 1;
	mallopt(M_TOP_PAD, 4 << 20); /* no further call for memory */
	free(malloc(1));
	if (!strcmp(arguments[1], "begin") && dispatch()) {
		puts("not supported");
		return 0;
	}
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	selector = 0;
	if (!strcmp(arguments[1], "later")) {
		for (int i = 0; i < 1000; i++)
			kept[i] = malloc(300);
		if (dispatch())
			return 1;
	}
	allocate(1000);
	puts("done");
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) ? 1 : 0;
}
