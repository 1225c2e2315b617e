/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/priority.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/cleanup.h"

void priority_keep(void)
{
	setsid();
	_cleanup_close_ int group = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (group >= 0)
		dprintf(group, "%d", getpriority(PRIO_PROCESS, 0));
}

void priority_set(int priority)
{
	setpriority(PRIO_PROCESS, 0, priority);
	priority_keep();
}

static int before_hurry = PRIORITY_HURRIED;

void priority_hurry(pid_t other)
{
	before_hurry = getpriority(PRIO_PROCESS, 0);
	if (before_hurry <= PRIORITY_HURRIED)
		return;
	setpriority(PRIO_PROCESS, 0, PRIORITY_HURRIED);
	if (other > 0)
		setpriority(PRIO_PROCESS, (id_t)other, PRIORITY_HURRIED);
}

void priority_rest(void)
{
	if (before_hurry > PRIORITY_HURRIED)
		setpriority(PRIO_PROCESS, 0, before_hurry);
}
