/* SPDX-License-Identifier: Apache-2.0 */
/* Lives for 0.2 s and allocates. */
#include <stdlib.h>
#include <unistd.h>

static void *volatile kept[20];

int main(void)
{
	for (int i = 0; i < 20; i++) {
		kept[i] = malloc(100 + (size_t)i);
		usleep(10000);
	}
	return 0;
}
