/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/finder.h"

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/child.h"
#include "runtime/cpython/runtime.h"
#include "runtime/cpython/runtime_files.h"
#include "util/clock.h"
#include "util/message.h"

#define SWEEP_NS 60000000000ull /* files that nobody has had for so long are closed */

/* --- the process ------------------------------------------------------------------------------ */

static bool has_python(struct runtime_files *files, pid_t pid)
{
	struct python_runtime runtime;

	if (python_runtime_find(pid, files, &runtime))
		return 0;
	python_runtime_close(&runtime);
	return 1;
}

_Noreturn static void finder_run(void *context, int socket, pid_t parent)
{
	uint64_t sweep_ns = 0;
	struct runtime_files *files;
	pid_t pid;

	(void)context;
	if (child_confine_reader("tracer-finder", socket, parent) || runtime_files_new(&files))
		_exit(1);
	while (message_receive(CHILD_SOCKET, &pid, sizeof(pid), NULL, 0, NULL) == sizeof(pid)) {
		uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
		char found;

		if (now_ns >= sweep_ns) {
			runtime_files_sweep(files);
			sweep_ns = now_ns + SWEEP_NS;
		}
		found = has_python(files, pid);
		const struct iovec part = {&found, 1};
		if (message_send(CHILD_SOCKET, &part, 1, NULL, 0) != 1)
			break;
	}
	_exit(0);
}

/* --- the agent -------------------------------------------------------------------------------- */

void finder_end(struct python_finder *finder)
{
	if (!finder->child)
		return;
	kill(finder->child, SIGKILL);
	/* One that a file system holds ends later: the agent's loop does not wait for it. */
	for (int tries = 0; tries < 10 && !waitpid(finder->child, NULL, WNOHANG); tries++)
		usleep(1000);
	close(finder->socket);
	*finder = (struct python_finder){0};
}

static bool answer_get(const struct python_finder *finder, pid_t pid, char *out)
{
	const struct iovec part = {&pid, sizeof(pid)};
	struct pollfd answer = {.fd = finder->socket, .events = POLLIN};

	return message_send(finder->socket, &part, 1, NULL, 0) == sizeof(pid) &&
	       poll(&answer, 1, FINDER_MS) > 0 &&
	       message_receive(finder->socket, out, 1, NULL, 0, NULL) == 1;
}

bool finder_has_python(struct python_finder *finder, pid_t pid)
{
	char found = 0;

	if (!finder->child) {
		int socket = message_child(&finder->child, SOCK_SEQPACKET, finder_run, NULL);

		if (socket < 0) {
			finder->child = 0;
			return 0;
		}
		finder->socket = socket;
	}
	if (answer_get(finder, pid, &found))
		return found;
	finder_end(finder);
	return 0;
}
