/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An application that embeds Python. 
 * usage: embed LIBRARY PROGRAM [ARG...]  loads it by dlopen()
 *        embed - PROGRAM [ARG...]        is linked with it (-DLINKED)
 *
 * Before it loads the library it prints "waiting" and waits for a line, and having loaded it
 * "loaded", and waits again. Then it runs the program as `python PROGRAM ARG...` would, on a thread
 * of its own.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

typedef int (*main_fn)(int, char **);

#ifdef LINKED
int Py_BytesMain(int argc, char **argv);
#endif

struct run {
	main_fn run;
	int argc, status;
	char **argv;
};

static void *thread_run(void *context)
{
	struct run *run = context;

	run->status = run->run(run->argc, run->argv);
	return NULL;
}

static int say_and_wait(const char *text)
{
	char line[100];

	return puts(text) < 0 || fflush(stdout) || read(0, line, sizeof(line)) < 0;
}

int main(int argc, char **argv)
{
	struct run run = {.argc = argc - 1, .argv = argv + 1};
	pthread_t thread;
	void *library;

	if (argc < 3)
		return 2;
#ifdef LINKED
	run.run = Py_BytesMain;
#endif
	if (!run.run) {
		if (say_and_wait("waiting"))
			return 3;
		library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
		if (!library) {
			fprintf(stderr, "%s\n", dlerror());
			return 4;
		}
		if (say_and_wait("loaded"))
			return 3;
		run.run = (main_fn)dlsym(library, "Py_BytesMain");
	}
	if (!run.run || pthread_create(&thread, NULL, thread_run, &run) ||
	    pthread_join(thread, NULL))
		return 5;
	return run.status;
}
