/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/service.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/clock.h"

void service_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t bytes = path ? strlen(path) : 0;
	char text[256];

	if (!bytes || bytes >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, bytes);
	if (path[0] == '@') /* an abstract socket */
		address.sun_path[0] = '\0';
	/* A reload is told with its time, so that the manager knows which one has ended. */
	if (!strcmp(state, "RELOADING=1"))
		snprintf(text, sizeof(text), "%s\nMONOTONIC_USEC=%llu", state,
			 (unsigned long long)(clock_ns(CLOCK_MONOTONIC) / 1000));
	else
		snprintf(text, sizeof(text), "%s", state);
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
		       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes));
}

uint64_t service_watchdog_ns(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

	if (!usec || (pid && strtol(pid, NULL, 10) != getpid()))
		return 0;
	return strtoull(usec, NULL, 10) * 1000 / 2;
}
