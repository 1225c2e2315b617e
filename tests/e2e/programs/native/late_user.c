/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads an allocator late, and uses it. usage: late_user LIBRARY
 *
 * Prints "ready"; loads it at the first byte on stdin and prints "loaded"; for each further byte
 * keeps 5 of 10 blocks and prints "done". Ends with its stdin.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	void *(*obtain)(unsigned long);
	void (*release)(void *);
	void *library;
	char byte;

	puts("ready");
	fflush(stdout);
	if (argc < 2 || read(0, &byte, 1) != 1)
		return 1;
	library = dlopen(argv[1], RTLD_NOW);
	obtain = library ? (void *(*)(unsigned long))dlsym(library, "je_malloc") : 0;
	release = library ? (void (*)(void *))dlsym(library, "je_free") : 0;
	if (!obtain || !release)
		return 1;
	puts("loaded");
	fflush(stdout);
	while (read(0, &byte, 1) == 1) {
		for (int i = 0; i < 10; i++) {
			void *block = obtain(100); /* # line LATE */

			if (i % 2)
				release(block);
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
