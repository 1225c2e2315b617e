/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes code in two pages, one after the other, so that their mappings become one. A step is a line
 * on stdin; it answers with one. Then it names code whose memory is unmapped already.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CODE_BYTES 64

__attribute__((noinline)) void name_region(void *address, size_t bytes, const char *name)
{
	__asm__ volatile("" ::"r"(address), "r"(bytes), "r"(name) : "memory");
}

/* It works wherever it is copied to. */
__attribute__((noinline, aligned(64))) void spin(long count)
{
	while (count--)
		__asm__ volatile("" ::: "memory");
}

static void answer(const char *with)
{
	char line[64];

	puts(with);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

static void code_make(char *at, size_t page, const char *name)
{
	if (mprotect(at, page, PROT_READ | PROT_EXEC))
		exit(1);
	name_region(at, CODE_BYTES, name);
}

static void run(char *at)
{
	void (*code)(long);

	memcpy(&code, &at, sizeof(code));
	code(300 * 1000 * 1000);
}

int main(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *first = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0),
	     *second = first + page;

	if (first == MAP_FAILED)
		return 1;
	memcpy(first, (void *)spin, CODE_BYTES);
	memcpy(second, (void *)spin, CODE_BYTES);
	answer("ready");
	code_make(first, page, "py::first");
	answer("ok");
	code_make(second, page, "py::second");
	run(first);
	run(second);
	answer("ok");
	munmap(second, page);
	name_region(second, CODE_BYTES, "py::vanished");
	answer("ok");
	return 0;
}
