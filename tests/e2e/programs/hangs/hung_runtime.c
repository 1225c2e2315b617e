/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads a libpython without starting an interpreter, and maps a file whose reads never return over
 * its variables. argv: the libpython, the file. Prints "ready"; ends with its stdin.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul

int main(int argc, char **argv)
{
	void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	char *runtime = library ? dlsym(library, "_PyRuntime") : NULL, byte;
	int fd = open(argv[2], O_RDONLY);

	if (!runtime || fd < 0) {
		fprintf(stderr, "%s\n", runtime ? argv[2] : dlerror());
		return 1;
	}
	if (mmap((void *)((uintptr_t)runtime & -PAGE), PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	/* Nothing that runs at exit may look at the variables. */
	_exit(0);
}
