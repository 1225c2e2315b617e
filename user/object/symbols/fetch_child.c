/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "object/symbols/fetch_wire.h"
#include "proc/child.h"

#define LIBRARY "libdebuginfod.so.1"
/* The largest file that is fetched, and the longest time for it, unless the environment says so. */
#define BYTES_MAX   "2147483648"
#define SECONDS_MAX "120"
/* All files of a session, of which there are as many as servers have and the target maps. */
#define TOTAL_MAX (8ull << 30)

/* libdebuginfod's interface: debuginfod_find_debuginfo(3). */
struct library {
	void *(*begin)(void);
	int (*find)(void *client, const unsigned char *build_id, int bytes, char **path);
};

static int library_open(struct library *library)
{
	void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		return -ELIBACC;
	*(void **)&library->begin = dlsym(handle, "debuginfod_begin");
	*(void **)&library->find = dlsym(handle, "debuginfod_find_debuginfo");
	return library->begin && library->find ? 0 : -ELIBBAD;
}

static int environment_set(const char *urls)
{
	/* They print to stderr, which is nobody's. */
	unsetenv("DEBUGINFOD_VERBOSE");
	unsetenv("DEBUGINFOD_PROGRESS");
	return setenv("DEBUGINFOD_URLS", urls, 1) || setenv("DEBUGINFOD_MAXSIZE", BYTES_MAX, 0) ||
			       setenv("DEBUGINFOD_MAXTIME", SECONDS_MAX, 0)
		       ? -ENOMEM
		       : 0;
}

/*
 * The library compares a length that the server sends. Without one the body may be endless: then
 * the kernel refuses to write more (EFBIG), and the library removes what there is.
 */
static int files_limit(uint64_t left)
{
	uint64_t largest = strtoull(getenv("DEBUGINFOD_MAXSIZE") ?: BYTES_MAX, NULL, 10);
	struct rlimit limit;

	/* The library takes 0 for no limit. */
	if (!largest || largest > left)
		largest = left;
	limit.rlim_cur = limit.rlim_max = largest;
	return setrlimit(RLIMIT_FSIZE, &limit) ? -errno : 0;
}

/* fd: -1 for none. */
static int result_send(uint32_t number, int result, int fd)
{
	char control[CMSG_SPACE(sizeof(fd))] __attribute__((aligned(8))) = {0};
	struct fetch_result answer = {.number = number, .result = result};
	struct iovec iov = {.iov_base = &answer, .iov_len = sizeof(answer)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *header = (void *)control;

	if (fd >= 0) {
		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	return sendmsg(CHILD_SOCKET, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Returns a descriptor, or -errno. *left: bytes that may still be fetched. */
static int file_find(const struct library *library, void *client, const char *build_id,
		     uint64_t *left)
{
	char *path = NULL;
	struct stat st;
	int fd, err = files_limit(*left);

	if (err)
		return err;
	/* A length of 0 says that it is in hex. */
	fd = library->find(client, (const unsigned char *)build_id, 0, &path);
	free(path);
	if (fd >= 0 && !fstat(fd, &st))
		*left -= (uint64_t)st.st_size < *left ? (uint64_t)st.st_size : *left;
	return fd;
}

void fetch_child_run(int socket, pid_t parent, const char *urls)
{
	struct fetch_question question;
	struct library library = {0};
	uint64_t left = TOTAL_MAX;
	int err = environment_set(urls);
	void *client = NULL;

	if (!err)
		err = child_confine("tracer-fetch", socket, parent);
	if (err)
		_exit(1);
	err = library_open(&library);
	if (!err) {
		client = library.begin();
		err = client ? 0 : -ENOMEM;
	}
	signal(SIGXFSZ, SIG_IGN);
	if (result_send(0, err, -1) || err)
		_exit(1);
	while (recv(CHILD_SOCKET, &question, sizeof(question), 0) == sizeof(question)) {
		question.build_id[sizeof(question.build_id) - 1] = '\0';
		int fd = file_find(&library, client, question.build_id, &left);
		err = result_send(question.number, fd < 0 ? fd : 0, fd);
		if (fd >= 0)
			close(fd);
		if (err)
			break;
	}
	_exit(0);
}
