/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Once stdin has a line, another process that shares this one's memory keeps 1,000 blocks of 1,000
 * bytes, and this one as many of 500. Then children of vfork end: one by exec, one by itself.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char stack[1 << 20], line[80];
static void *volatile kept[2000];
static volatile int done;

static int work(void *argument)
{
	(void)argument;
	for (int i = 0; i < 1000; i++)
		kept[i] = malloc(1000);
	done = 1;
	for (;;)
		pause();
}

int main(void)
{
	int pid;

	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	pid = clone(work, stack + sizeof(stack) - 64, CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD,
		    NULL);
	/* malloc has no locks between processes. */
	while (pid > 0 && !done)
		usleep(1000);
	for (int i = 1000; i < 2000; i++)
		kept[i] = malloc(500);
	for (int i = 0; i < 2; i++) {
		int child = vfork();

		if (!child && i)
			_exit(0);
		if (!child)
			execl("/bin/true", "true", NULL);
		waitpid(child, NULL, 0);
	}
	puts("done");
	fflush(stdout);
	line[0] = (char)fgetc(stdin);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}
