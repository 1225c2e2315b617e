/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ctl/session_socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "util/array.h"
#include "util/error.h"

#define BACKLOG 16

static int address_set(struct sockaddr_un *address, const char *directory, pid_t pid,
		       const char *suffix)
{
	int size;

	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	size = snprintf(address->sun_path, sizeof(address->sun_path), "%s/%d.%s", directory, pid,
			suffix);
	return size < (int)sizeof(address->sun_path)
		       ? 0
		       : error_set(-ENAMETOOLONG, "%s: too long", directory);
}

/* The directory must belong to us alone, so that no other user can create anything in it. */
static int directory_check(const char *directory)
{
	struct stat st;

	if (mkdir(directory, 0700) && errno != EEXIST)
		return error_set(-errno, "cannot create %s: %s%s", directory, strerror(errno),
				 errno == EROFS ? "; a tmpfs in which it can be is enough" : "");
	if (lstat(directory, &st))
		return error_set(-errno, "%s: %s", directory, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return error_set(-ENOTDIR, "%s is not a directory", directory);
	if (st.st_uid != geteuid() || st.st_mode & 077)
		return error_set(-EPERM, "%s must belong to us alone (owner %u, mode %03o)",
				 directory, st.st_uid, st.st_mode & 0777);
	return 0;
}

static int socket_bind(int fd, const char *directory, pid_t pid)
{
	struct sockaddr_un made, final;
	int err = address_set(&made, directory, pid, "new")
			  ?: address_set(&final, directory, pid, "sock");

	if (err)
		return err;
	/*
	 * A socket with our pid is a dead session's. fchmod() before bind() gives the file its
	 * final mode from the start.
	 */
	unlink(made.sun_path);
	if (fchmod(fd, 0600) || bind(fd, (void *)&made, sizeof(made)) || listen(fd, BACKLOG) ||
	    rename(made.sun_path, final.sun_path)) {
		err = error_set(-errno, "%s: %s", final.sun_path, strerror(errno));
		unlink(made.sun_path);
	}
	return err;
}

static void dead_remove(const char *directory, pid_t self)
{
	pid_t *pids;
	size_t count;

	if (session_socket_list(directory, &pids, &count))
		return;
	for (size_t i = 0; i < count; i++) {
		int fd = pids[i] == self ? -EINVAL : session_socket_connect(directory, pids[i]);

		if (fd == -ECONNREFUSED)
			session_socket_remove(directory, pids[i]);
		if (fd >= 0)
			close(fd);
	}
	free(pids);
}

int session_socket_listen(const char *directory, pid_t pid)
{
	int err = directory_check(directory);
	int fd = err ?: socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err ?: error_errno();
	dead_remove(directory, pid);
	err = socket_bind(fd, directory, pid);
	if (!err)
		return fd;
	close(fd);
	return err;
}

void session_socket_remove(const char *directory, pid_t pid)
{
	struct sockaddr_un address;

	if (!address_set(&address, directory, pid, "sock"))
		unlink(address.sun_path);
}

int session_socket_path(const char *directory, pid_t pid, char out[SOCKET_PATH_MAX])
{
	struct sockaddr_un address;
	int err = address_set(&address, directory, pid, "sock");

	if (!err)
		memcpy(out, address.sun_path, SOCKET_PATH_MAX);
	return err;
}

int session_socket_list(const char *directory, pid_t **pids, size_t *count)
{
	DIR *folder = opendir(directory);
	size_t capacity = 0;
	int err = 0;

	if (!folder)
		return error_set(-errno, "%s: %s", directory, strerror(errno));
	*pids = NULL;
	*count = 0;
	for (struct dirent *entry; !err && (entry = readdir(folder));) {
		char *end;
		long pid = strtol(entry->d_name, &end, 10);

		if (pid <= 0 || pid > 1 << 22 || strcmp(end, ".sock"))
			continue;
		err = array_reserve(pids, &capacity, *count, 1, sizeof(**pids));
		if (!err)
			(*pids)[(*count)++] = (pid_t)pid;
	}
	closedir(folder);
	if (err)
		free(*pids);
	return err;
}

int session_socket_connect(const char *directory, pid_t pid)
{
	struct sockaddr_un address;
	int err = address_set(&address, directory, pid, "sock");
	int fd = err ?: socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err ?: error_errno();
	if (!connect(fd, (void *)&address, sizeof(address)))
		return fd;
	err = error_errno();
	close(fd);
	return err;
}

int session_socket_peer_check(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return error_errno();
	*pid = peer.pid;
	return peer.uid == geteuid() ? 0 : -EPERM;
}
