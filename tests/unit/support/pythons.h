/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real interpreters that tests run or read: from pyenv, else from PATH, else from `make roots`.
 */
#pragma once

#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Stores in out the path of a file of pyenv's interpreter of that minor version. name is relative
 * to the interpreter's folder. 1, or 0.
 */
static inline int pyenv_path(unsigned int minor, const char *name, char out[PATH_MAX])
{
	char pattern[PATH_MAX], root[PATH_MAX - 64] = "";
	FILE *stream = popen("pyenv root 2>/dev/null", "r");
	glob_t found;
	int got = 0;

	if (stream && fgets(root, sizeof(root), stream))
		root[strcspn(root, "\n")] = 0;
	if (stream)
		pclose(stream);
	snprintf(pattern, sizeof(pattern), "%s/versions/3.%u.*/%s", root, minor, name);
	if (root[0] && glob(pattern, 0, NULL, &found) == 0) {
		got = snprintf(out, PATH_MAX, "%s", found.gl_pathv[0]) < PATH_MAX;
		globfree(&found);
	}
	return got;
}

/* Path of the shared library of pyenv's interpreter of that minor version in out. 1, or 0. */
static inline int libpython_path(unsigned int minor, char out[PATH_MAX])
{
	char name[48];

	snprintf(name, sizeof(name), "lib/libpython3.%u.so.1.0", minor);
	return pyenv_path(minor, name, out);
}

/* The same for a root file system below build/roots (tests/machines/roots.py). */
static inline int root_python_path(unsigned int minor, char out[PATH_MAX])
{
	char pattern[64];
	glob_t found;
	int got;

	snprintf(pattern, sizeof(pattern), "build/roots/*/opt/unstripped/bin/python3.%u", minor);
	if (glob(pattern, 0, NULL, &found))
		return 0;
	got = realpath(found.gl_pathv[0], out) && !access(out, X_OK);
	globfree(&found);
	return got;
}

/* Path of an interpreter of that minor version in out. 1, or 0 and a printed reason to skip. */
static inline int python_path(unsigned int minor, char out[PATH_MAX])
{
	char name[32], binary[40], *path, *entry, *rest;
	int got;

	snprintf(name, sizeof(name), "python3.%u", minor);
	snprintf(binary, sizeof(binary), "bin/%s", name);
	got = pyenv_path(minor, binary, out);
	path = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin");
	for (entry = strtok_r(path, ":", &rest); entry && !got;
	     entry = strtok_r(NULL, ":", &rest)) {
		got = snprintf(out, PATH_MAX, "%s/%s", entry, name) < PATH_MAX &&
		      !access(out, X_OK) && !strstr(entry, "shims");
	}
	free(path);
	got = got || root_python_path(minor, out);
	if (!got)
		printf("no %s on this machine\n", name);
	return got;
}

struct python_child {
	pid_t pid;
	FILE *out; /* its standard output */
};

/* argv[0] is the interpreter; name=value, when not NULL, is added to its environment. */
static inline int python_start(struct python_child *child, char *const argv[], char *environment)
{
	int ends[2];

	if (pipe(ends))
		return -1;
	child->pid = fork();
	if (child->pid == 0) {
		dup2(ends[1], 1);
		close(ends[0]);
		close(ends[1]);
		alarm(120); /* ends the child if the test crashes */
		unsetenv("PYTHONMALLOC");
		unsetenv("LD_PRELOAD");
		if (environment)
			putenv(environment);
		execv(argv[0], argv);
		_exit(127);
	}
	close(ends[1]);
	child->out = fdopen(ends[0], "r");
	return child->pid < 0 || !child->out ? -1 : 0;
}

/*
 * Waits until the child is in pause(). Between its output and pause() its number of blocks may
 * still change.
 */
static inline void python_wait_paused(const struct python_child *child)
{
	char path[64], call[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/syscall", child->pid);
	for (int tries = 0; tries < 5000; tries++) {
		FILE *file = fopen(path, "r");

		assert_non_null(file);
		if (!fgets(call, sizeof(call), file))
			call[0] = '\0';
		fclose(file);
		if (call[0] != 'r' && atoi(call) == SYS_pause)
			return;
		usleep(1000);
	}
	fail_msg("the child does not pause: %s", call);
}

static inline void python_stop(struct python_child *child)
{
	kill(child->pid, SIGKILL);
	waitpid(child->pid, NULL, 0);
	fclose(child->out);
}

/* test_38 to test_315, each of which calls check() with its minor version. */
#define VERSION_TEST(check, minor)                                                                 \
	static void test_3##minor(void **state)                                                    \
	{                                                                                          \
		(void)state;                                                                       \
		check(minor);                                                                      \
	}
#define VERSION_TESTS(check)                                                                       \
	VERSION_TEST(check, 8)                                                                     \
	VERSION_TEST(check, 9)                                                                     \
	VERSION_TEST(check, 10)                                                                    \
	VERSION_TEST(check, 11)                                                                    \
	VERSION_TEST(check, 12)                                                                    \
	VERSION_TEST(check, 13)                                                                    \
	VERSION_TEST(check, 14)                                                                    \
	VERSION_TEST(check, 15)
