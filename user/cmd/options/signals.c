/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/options/signals.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "proc/launch.h"
#include "util/error.h"

int signals_catch(int *fd, int on)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(on ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL))
		return error_errno();
	if (on && *fd < 0)
		*fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return on && *fd < 0 ? error_errno() : 0;
}

int signals_end(int fd, struct launch *launch, int *interrupts)
{
	struct signalfd_siginfo info;

	while (read(fd, &info, sizeof(info)) == sizeof(info)) {
		if (!launch)
			return 1;
		if (info.ssi_signo == SIGTERM)
			launch_signal(launch, SIGTERM);
		if (++*interrupts > 1)
			return 1;
	}
	return 0;
}
