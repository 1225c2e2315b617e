/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a Docker daemon (or a compatible one): GET /containers/json with HTTP/1.0, so that the
 * answer is not chunked and ends with the connection. The whole exchange may take a second.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proc/container/container_list.h"
#include "proc/container/state_file.h"
#include "util/buffer.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"

#define ANSWER_NS 1000000000ull
#define REQUEST   "GET /containers/json HTTP/1.0\r\nHost: docker\r\n\r\n"

static int summary_take(struct container_list *list, const json_t *summary)
{
	struct container found = {.runtime = CONTAINER_RUNTIME_DOCKER};
	const char *id = state_text(summary, "Id");
	const char *name = json_string_value(json_array_get(json_object_get(summary, "Names"), 0));

	if (!container_id_is_valid(id))
		return 0;
	container_text_set(found.id, sizeof(found.id), id);
	name = name ? name + (*name == '/') : "";
	if (!container_kubernetes_name(name, &found))
		container_text_set(found.name, sizeof(found.name), name);
	container_kubernetes_annotations(json_object_get(summary, "Labels"), &found);
	return container_list_add(list, &found)
		       ?: container_list_tag(list, &found, json_object_get(summary, "Labels"),
					     NULL);
}

int container_docker_answer(struct container_list *list, const char *text, size_t bytes)
{
	static const char ending[] = "\r\n\r\n";
	const char *body = memmem(text, bytes, ending, sizeof(ending) - 1);
	int err = 0;

	if (!body || bytes < 13 || memcmp(text, "HTTP/1.", 7) || memcmp(text + 8, " 200", 4))
		return -EBADMSG;
	body += sizeof(ending) - 1;
	json_t *answer = json_loadb(body, bytes - (size_t)(body - text), 0, NULL);
	if (!json_is_array(answer))
		err = -EBADMSG;
	for (size_t i = 0; !err && i < json_array_size(answer); i++)
		err = summary_take(list, json_array_get(answer, i));
	json_decref(answer);
	return err;
}

/*
 * Connects through a descriptor of the socket's directory, so that the path is resolved in the
 * daemon's root and the address is short enough.
 */
static int socket_connect(pid_t pid, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char folder[512];
	const char *name = strrchr(path, '/');

	if (!name || (size_t)(name - path) >= sizeof(folder) ||
	    strlen(name) > sizeof(address.sun_path) - 32)
		return -EINVAL;
	snprintf(folder, sizeof(folder), "%.*s/", (int)(name - path), path);
	int directory = state_dir_open(pid, folder);
	if (directory < 0)
		return directory;
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d%s", directory, name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int err = fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address))
			  ? error_errno()
			  : 0;
	close(directory);
	/* EAGAIN: the backlog is full. */
	if (!err)
		return fd;
	descriptor_close(fd);
	return err == -EAGAIN ? -ETIMEDOUT : err;
}

/* Waits for the socket until end_ns: 0, -ETIMEDOUT, -errno. */
static int socket_wait(int fd, short events, uint64_t end_ns)
{
	struct pollfd poll_fd = {.fd = fd, .events = events};
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	int ready = now >= end_ns ? 0 : poll(&poll_fd, 1, (int)((end_ns - now) / 1000000) + 1);

	return ready > 0 ? 0 : ready ? error_errno() : -ETIMEDOUT;
}

static int answer_read(int fd, uint64_t end_ns, struct buffer *answer)
{
	for (;;) {
		int err = socket_wait(fd, POLLIN, end_ns) ?: buffer_reserve(answer, 65536);

		if (err)
			return err;
		ssize_t got = read(fd, answer->data + answer->size, 65536);
		if (got <= 0)
			return got ? error_errno() : 0;
		answer->size += (size_t)got;
		if (answer->size > CONTAINER_INDEX_BYTES)
			return -EFBIG;
	}
}

/* The peer must run as the user whose daemon is asked. */
static int peer_check(const struct container_list *list, int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return error_errno();
	return peer.uid == list->current_owner.uid ? 0 : -EPERM;
}

int container_docker_ask(struct container_list *list, pid_t pid, const char *socket_path)
{
	uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + ANSWER_NS;
	struct buffer answer = {0};
	int fd = socket_connect(pid, socket_path);

	if (fd < 0)
		return fd;
	int err = peer_check(list, fd) ?: socket_wait(fd, POLLOUT, end_ns);
	/* A request this short fits into the socket's buffer as a whole. */
	if (!err &&
	    send(fd, REQUEST, sizeof(REQUEST) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(REQUEST) - 1)
		err = -EIO;
	err = err
	      ?: answer_read(fd, end_ns, &answer)
	      ?: container_docker_answer(list, (const char *)answer.data, answer.size);
	buffer_free(&answer);
	close(fd);
	return err;
}
