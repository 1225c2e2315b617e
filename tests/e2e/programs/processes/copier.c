/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a copy of malloc's code once stdin has a line, as a program in huge pages would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char line[512];
static unsigned long begin, end;

static int text_find(unsigned long at)
{
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin <= at && at < end)
			return 1;
	return 0;
}

int main(void)
{
	void *(*code)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
	char *near, *copy = MAP_FAILED;

	if (!code || !text_find((unsigned long)code))
		return 1;
	near = (char *)(begin & ~(1ul << 30)); /* what it refers to is within 2 GiB */
	for (int i = 0; i < 1000 && copy == MAP_FAILED; i++)
		copy = mmap(near + ((long)i << 21), end - begin, PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	puts("ready");
	fflush(stdout);
	if (copy == MAP_FAILED || !fgets(line, sizeof(line), stdin))
		return 1;
	memcpy(copy, (void *)begin, end - begin);
	((void *(*)(size_t))(copy + ((unsigned long)code - begin)))(100);
	puts("done");
	fflush(stdout);
	return 0;
}
