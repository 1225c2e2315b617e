/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that is made at run time, is named in a perf map, and uses the frame pointer for something
 * else calls malloc(3000) ten times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Far from the stack's base, where any code may be a stack's outermost. */
static void deep(const unsigned char *code)
{
	volatile char below[64 << 10];

	below[0] = 1;
	for (int i = 0; i < 10; i++)
		((void *(*)(void))code)();
	below[1] = 1;
}

int main(void)
{
	static const unsigned char begin[] = {0x55,                   /* push %rbp */
					      0x31, 0xed,             /* xor %ebp, %ebp */
					      0xbf, 0xb8, 0x0b, 0, 0, /* mov $3000, %edi */
					      0x48, 0xb8 /* mov $malloc, %rax */},
				   end[] = {0xff, 0xd0, /* call *%rax */
					    0x5d, 0xc3 /* pop %rbp; ret */};
	void *(*volatile target)(size_t) = malloc;
	unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64], byte;
	FILE *map;

	if (code == MAP_FAILED)
		return 1;
	memcpy(code, begin, sizeof(begin));
	memcpy(code + sizeof(begin), (void *)&target, sizeof(target));
	memcpy(code + sizeof(begin) + sizeof(target), end, sizeof(end));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	map = fopen(path, "w");
	if (!map)
		return 1;
	fprintf(map, "%lx %x frameless\n", (unsigned long)code, 4096);
	fclose(map);
	puts("ready");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	deep(code);
	puts("done");
	fflush(stdout);
	return read(0, &byte, 1) < 0;
}
