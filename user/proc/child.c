/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "util/array.h"
#include "util/error.h"
#include "util/regular.h"

static void signals_ignore(void)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
	sigset_t none;

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int descriptors_keep(int socket)
{
	regular_forget();
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	socket = fcntl(socket, F_DUPFD, CHILD_SOCKET + 1);
	if (null < 0 || socket < 0)
		return error_errno();
	for (int fd = 0; fd < CHILD_SOCKET; fd++)
		if (dup2(null, fd) < 0)
			return error_errno();
	if (dup2(socket, CHILD_SOCKET) < 0 || syscall(SYS_close_range, CHILD_SOCKET + 1u, ~0u, 0u))
		return error_errno();
	return 0;
}

static int child_detach(const char *name, int socket, pid_t parent)
{
	const struct rlimit no_core = {0, 0};

	prctl(PR_SET_NAME, name);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return -ESRCH;
	signals_ignore();
	int err = descriptors_keep(socket);
	if (err)
		return err;
	setrlimit(RLIMIT_CORE, &no_core);
	return 0;
}

int child_confine(const char *name, int socket, pid_t parent)
{
	return child_detach(name, socket, parent) ?: privileges_drop_all();
}

int child_confine_reader(const char *name, int socket, pid_t parent)
{
	return child_detach(name, socket, parent) ?: privileges_drop(0, -1) ?: calls_limit(0);
}
