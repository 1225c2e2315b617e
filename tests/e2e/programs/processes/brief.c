/* SPDX-License-Identifier: Apache-2.0 */
/* Over in a millisecond, as is its child: neither frees what it has. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

void *volatile kept[4];

NOINLINE static void keep(void)
{
	for (int i = 0; i < 3; i++)
		kept[i] = malloc(1000); /* # line KEPT */
}

NOINLINE static void child(void)
{
	kept[3] = malloc(500); /* # line CHILD */
}

int main(void)
{
	int status = 1;

	keep();
	if (!fork()) {
		child();
		_exit(0);
	}
	wait(&status);
	return status != 0;
}
