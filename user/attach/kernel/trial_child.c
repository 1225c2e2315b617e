/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/kernel/trial_child.h"
#include "util/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static void child_run(int (*ask)(void *context), void *context, int answer_fd)
{
	setsid();
	/* The kernel may make us wait for long: whoever reads the tracer's output must not, too. */
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fd != answer_fd)
			close(fd);
	int answer = ask(context);
	_exit(write(answer_fd, &answer, sizeof(answer)) != sizeof(answer));
}

int trial_child_run(int (*ask)(void *context), void *context)
{
	int fds[2], answer, err = 0;

	if (pipe2(fds, O_CLOEXEC))
		return error_errno();
	pid_t child = fork();
	if (!child)
		child_run(ask, context, fds[1]);
	if (child < 0)
		err = error_errno();
	close(fds[1]);
	/* The probe is gone when the child has ended, not when its answer arrives. */
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (!err && read(fds[0], &answer, sizeof(answer)) != sizeof(answer))
		err = -ECHILD;
	close(fds[0]);
	return err ?: answer;
}
