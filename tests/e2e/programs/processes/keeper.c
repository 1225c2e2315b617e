/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps 1,000 blocks once stdin has a line, or has ended. */
#include <stdio.h>
#include <stdlib.h>

static void *volatile kept[1000];
static char line[80];

int main(void)
{
	int more;

	puts("ready");
	fflush(stdout);
	do {
		more = fgets(line, sizeof(line), stdin) != NULL;
		for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
			kept[i] = malloc(1000);
		puts("done");
		fflush(stdout);
	} while (more);
	return 0;
}
