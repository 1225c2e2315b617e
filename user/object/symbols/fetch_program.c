/* SPDX-License-Identifier: Apache-2.0 */
#include "object/symbols/fetch_program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/array.h"
#include "util/error.h"

#define PROGRAM "debuginfod-find"

/* Does not return. parent: whom it does not outlive, with the file half fetched. */
static void program_run(char *const arguments[], int output, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent && dup2(output, STDOUT_FILENO) >= 0 &&
	    dup2(output, STDERR_FILENO) >= 0)
		execvp(PROGRAM, arguments);
	_exit(127);
}

/* Reads until the end, and keeps size - 1 bytes. Returns how many were read, or -errno. */
static ssize_t text_read(int fd, char *text, size_t size)
{
	char more[256] = {0};
	size_t count = 0;
	ssize_t got;

	do {
		bool fits = count < size - 1;

		got = read(fd, fits ? text + count : more, fits ? size - 1 - count : sizeof(more));
		count += got > 0 ? (size_t)got : 0;
	} while (got > 0 || (got < 0 && errno == EINTR));
	text[count < size ? count : size - 1] = '\0';
	return got < 0 ? error_errno() : (ssize_t)count;
}

/*
 * It ends a failure with "Server query failed: ERROR", in English. -ENOENT: no server has the file,
 * or the reason is another one.
 */
static int failure_parse(const char *text)
{
	static const int reasons[] = {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ETIME, ETIMEDOUT};

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (strstr(text, strerrordesc_np(reasons[i])))
			return -reasons[i];
	return -ENOENT;
}

/*
 * Runs it and takes what it prints, errors too. 0; -ENOENT: it is not there, or no server has the
 * file; -E2BIG; -errno, also that of the network.
 */
static int program_ask(char *const arguments[], char *text, size_t size)
{
	pid_t parent = getpid();
	int fds[2], status;

	if (pipe2(fds, O_CLOEXEC))
		return error_errno();
	pid_t pid = fork();
	if (!pid)
		program_run(arguments, fds[1], parent);
	ssize_t count = pid < 0 ? error_errno() : 0;
	close(fds[1]);
	if (pid > 0)
		count = text_read(fds[0], text, size);
	close(fds[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return error_errno();
	if (count < 0)
		return (int)count;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return failure_parse(text);
	return (size_t)count < size ? 0 : -E2BIG;
}

bool fetch_program_is_there(void)
{
	char *const arguments[] = {PROGRAM, "--version", NULL};
	char text[1024];

	return !program_ask(arguments, text, sizeof(text));
}

int fetch_program_find(const char *build_id)
{
	char *const arguments[] = {PROGRAM, "debuginfo", (char *)build_id, NULL};
	char path[PATH_MAX + 1];
	int err = program_ask(arguments, path, sizeof(path));

	if (err)
		return err;
	size_t length = strlen(path);
	if (length && path[length - 1] == '\n')
		path[length - 1] = '\0';
	/* The path is the last line; those before are warnings. */
	const char *line = strrchr(path, '\n');
	int fd = open(line ? line + 1 : path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? error_errno() : fd;
}
