/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small programs for tests of native symbols: built when the test runs, in a folder of their own,
 * started, and asked for the return addresses on their stack.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM_STACK_MAX 64

struct program {
	pid_t pid;
	int in, out; /* its standard input and output */
	uint64_t stack[PROGRAM_STACK_MAX];
	size_t depth;
};

/* The innermost call of each C or C++ program: it writes its stack and waits for a byte. */
#define PROGRAM_TELL                                                                               \
	"#include <execinfo.h>\n"                                                                  \
	"#include <unistd.h>\n"                                                                    \
	"static __attribute__((noinline)) void tell(void) {\n"                                     \
	"  void *at[64]; char c; long n = backtrace(at, 64);\n"                                    \
	"  if (write(1, &n, sizeof(n)) != sizeof(n) ||\n"                                          \
	"      write(1, at, n * sizeof(*at)) < 0) _exit(1);\n"                                     \
	"  if (read(0, &c, 1) < 0) _exit(1);\n"                                                    \
	"}\n"

static int __attribute__((format(printf, 1, 2))) run(const char *format, ...)
{
	char command[4 * PATH_MAX];
	va_list args;
	int status;

	va_start(args, format);
	assert_true(vsnprintf(command, sizeof(command), format, args) < (int)sizeof(command));
	va_end(args);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void need(const char *tool)
{
	if (run("command -v %s >/dev/null", tool)) {
		print_message("skipped: no %s\n", tool);
		skip();
	}
}

static void text_write(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static inline void program_start(struct program *program, const char *path)
{
	int in[2], out[2];
	long depth;

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	program->pid = fork();
	assert_true(program->pid >= 0);
	if (!program->pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(path, path, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	program->in = in[1];
	program->out = out[0];
	assert_int_equal(read(program->out, &depth, sizeof(depth)), sizeof(depth));
	assert_true(depth > 0 && depth <= PROGRAM_STACK_MAX);
	program->depth = (size_t)depth;
	assert_int_equal(read(program->out, program->stack, depth * sizeof(uint64_t)),
			 depth * sizeof(uint64_t));
}

static inline void program_end(struct program *program)
{
	close(program->in);
	close(program->out);
	kill(program->pid, SIGKILL);
	waitpid(program->pid, NULL, 0);
}
