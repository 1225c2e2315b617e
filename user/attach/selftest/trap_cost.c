/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/selftest/trap_cost.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/own_function.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/sorted.h"

#define BATCHES 9
#define CALLS   400 /* per batch: a third of a millisecond */

/*
 * The probed function. Its first instruction is one that the kernel emulates, as at nearly all of
 * our sites.
 */
#ifdef __aarch64__ /* gcc has no naked functions there */
void trap(void) __asm__("trial_trap");
__asm__(".text; .type trial_trap,%function; trial_trap: b 1f; 1: ret; .size trial_trap, 8");
#else
__attribute__((naked, noinline)) static void trap(void)
{
	asm volatile("nop; ret");
}
#endif

static int double_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return CMP(x, y);
}

/* Nanoseconds per call: the median of several batches, since other processes may be running. */
static double calls_time(void)
{
	double times[BATCHES];

	for (int i = 0; i < BATCHES; i++) {
		uint64_t start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

		for (int call = 0; call < CALLS; call++)
			trap();
		times[i] = (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / CALLS;
	}
	qsort(times, BATCHES, sizeof(times[0]), double_compare);
	return times[BATCHES / 2];
}

/* Waits for a byte from the parent, and writes how long a call took. Never returns. */
static void child_run(int wait_fd, int answer_fd)
{
	char word;

	if (read(wait_fd, &word, 1) != 1)
		_exit(1);
	double each = calls_time();
	_exit(write(answer_fd, &each, sizeof(each)) == sizeof(each) ? 0 : 1);
}

static int child_probe(struct attach *attach, pid_t child)
{
	char path[OWN_FUNCTION_PATH];
	uint64_t offset;
	int err = own_function_find((uintptr_t)trap, path, &offset);

	return err ?: attach_empty(attach, path, offset, child);
}

int trap_trial_begin(struct trap_trial *out, struct attach *attach)
{
	int wait_fds[2], answer_fds[2], err = 0;

	if (pipe2(wait_fds, O_CLOEXEC))
		return error_errno();
	if (pipe2(answer_fds, O_CLOEXEC)) {
		err = error_errno();
		close(wait_fds[0]);
		close(wait_fds[1]);
		return err;
	}
	pid_t child = fork();
	if (!child) {
		close(wait_fds[1]);
		child_run(wait_fds[0], answer_fds[1]);
	}
	err = child < 0 ? error_errno() : 0;
	close(wait_fds[0]);
	close(answer_fds[1]);
	*out = (struct trap_trial){.child = child, .answer_fd = answer_fds[0]};
	err = err ?: child_probe(attach, child);
	if (!err && write(wait_fds[1], "", 1) != 1)
		err = error_errno();
	/* Without that byte the child reads the end of the pipe and exits too. */
	close(wait_fds[1]);
	if (err)
		trap_trial_end(out, attach, NULL);
	return err;
}

int trap_trial_end(struct trap_trial *trial, struct attach *attach, double *cost)
{
	int err = 0;

	if (cost && read(trial->answer_fd, cost, sizeof(*cost)) != sizeof(*cost))
		err = error_set(-ECHILD, "the child that measures a probe's cost has ended");
	close(trial->answer_fd);
	while (trial->child > 0 && waitpid(trial->child, NULL, 0) < 0 && errno == EINTR)
		;
	if (trial->child > 0 && attach)
		attach_drop(attach, trial->child, ATTACH_ALL, 1);
	*trial = (struct trap_trial){0};
	return err;
}
