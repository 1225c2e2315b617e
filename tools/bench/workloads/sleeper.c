/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeps until it is killed. Prints "ready" when it has taken a block. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
	char *volatile block = malloc(100);

	if (!block)
		return 1;
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
