/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two Pythons in one process. usage: two LIBRARY HOME OTHER-LIBRARY OTHER-HOME PROGRAM
 *
 * Each is loaded into a namespace of its own. The first runs the program. With an OTHER-HOME other
 * than "-" the other one is started, too, and does nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *function(void *library, const char *name)
{
	void *found = library ? dlsym(library, name) : NULL;

	if (!found)
		fprintf(stderr, "%s\n", dlerror());
	return found;
}

/* In the library's own namespace, which has a libc of its own. */
static void home_set(void *library, const char *home)
{
	int (*set)(const char *, const char *, int) = function(library, "setenv");

	set("PYTHONHOME", home, 1);
}

int main(int argc, char **argv)
{
	void *first, *other;
	void (*start)(int);
	int (*run)(int, char **);

	if (argc != 6)
		return 2;
	first = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
	other = dlmopen(LM_ID_NEWLM, argv[3], RTLD_NOW);
	run = function(first, "Py_BytesMain");
	start = function(other, "Py_InitializeEx");
	if (!run || !start)
		return 1;
	if (strcmp(argv[4], "-")) {
		home_set(other, argv[4]);
		start(0);
	}
	home_set(first, argv[2]);
	return run(2, (char *[]){argv[0], argv[5], NULL});
}
