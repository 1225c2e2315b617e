/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks for blocks at many places that are slow to name (slow_dwarf.S), once it is told to; then it
 * waits.
 */
#include <stdio.h>

void work_0(void);
void work_1(void);
void work_2(void);

int main(void)
{
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	work_0();
	work_1();
	work_2();
	puts("{}");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
