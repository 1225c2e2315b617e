/* SPDX-License-Identifier: Apache-2.0 */
#include "object/symbols/fetch.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "object/elf/elf_section.h"
#include "object/symbols/fetch_program.h"
#include "proc/child.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/message.h"

/* Messages between the process that fetches files and its owner (SOCK_SEQPACKET). */
struct fetch_question {
	uint32_t number;
	char build_id[ELF_BUILD_ID_HEX_MAX];
};

/* result: 0, with a descriptor; -errno. The first one, number 0, says whether it can begin. */
struct fetch_result {
	uint32_t number;
	int32_t result;
};

#define LIBRARY "libdebuginfod.so.1"
/* The largest file that is fetched, and the longest time for it, unless the environment says so. */
#define BYTES_MAX   "2147483648"
#define SECONDS_MAX "120"
/* All files of a session, of which there are as many as servers have and the target maps. */
#define TOTAL_MAX (8ull << 30)

/*
 * libdebuginfod's interface: debuginfod_find_debuginfo(3). Without the library, client is NULL and
 * debuginfod-find is run for each file.
 */
struct fetcher {
	void *client;
	int (*find)(void *client, const unsigned char *build_id, int bytes, char **path);
};

/* dlopen(), or NULL: a static tracer has none, since a library would bring a libc of its own. */
static void *(*library_opener(void))(const char *, int)
{
	void *(*open)(const char *, int);

	*(void **)&open = dlsym(RTLD_DEFAULT, "dlopen");
	return open;
}

/* 0; -ELIBACC: it is not here; -errno. */
static int library_open(struct fetcher *fetcher)
{
	void *(*open)(const char *, int) = library_opener();
	void *(*begin)(void);
	void *handle = open ? open(LIBRARY, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (!handle)
		return -ELIBACC;
	*(void **)&begin = dlsym(handle, "debuginfod_begin");
	*(void **)&fetcher->find = dlsym(handle, "debuginfod_find_debuginfo");
	if (!begin || !fetcher->find)
		return -ELIBBAD;
	fetcher->client = begin();
	return fetcher->client ? 0 : -ENOMEM;
}

static int fetcher_open(struct fetcher *fetcher)
{
	int err = library_open(fetcher);

	return err == -ELIBACC && fetch_program_is_there() ? 0 : err;
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
	return setrlimit(RLIMIT_FSIZE, &limit) ? error_errno() : 0;
}

/* fd: -1 for none. */
static int result_send(uint32_t number, int result, int fd)
{
	struct fetch_result answer = {.number = number, .result = result};
	const struct iovec part = {&answer, sizeof(answer)};
	ssize_t sent = message_send(CHILD_SOCKET, &part, 1, &fd, fd >= 0);

	return sent < 0 ? (int)sent : 0;
}

/* Returns a descriptor, or -errno. *left: bytes that may still be fetched. */
static int file_find(const struct fetcher *fetcher, const char *build_id, uint64_t *left)
{
	char *path = NULL;
	struct stat st;
	int fd, err = files_limit(*left);

	if (err)
		return err;
	/* A length of 0 says that it is in hex. */
	fd = fetcher->client
		     ? fetcher->find(fetcher->client, (const unsigned char *)build_id, 0, &path)
		     : fetch_program_find(build_id);
	free(path);
	if (fd >= 0 && !fstat(fd, &st))
		*left -= (uint64_t)st.st_size < *left ? (uint64_t)st.st_size : *left;
	return fd;
}

/* The process's main loop. Does not return. socket: its end. */
static void fetch_child_run(void *urls, int socket, pid_t parent)
{
	struct fetch_question question;
	struct fetcher fetcher = {0};
	uint64_t left = TOTAL_MAX;
	int err = environment_set(urls);

	err = err ?: child_confine("tracer-fetch", socket, parent);
	if (err)
		_exit(1);
	err = fetcher_open(&fetcher);
	signal(SIGXFSZ, SIG_IGN);
	if (result_send(0, err, -1) || err)
		_exit(1);
	while (recv(CHILD_SOCKET, &question, sizeof(question), 0) == sizeof(question)) {
		question.build_id[sizeof(question.build_id) - 1] = '\0';
		int fd = file_find(&fetcher, question.build_id, &left);
		err = result_send(question.number, fd < 0 ? fd : 0, fd);
		descriptor_close(fd);
		if (err)
			break;
	}
	_exit(0);
}

#define SECOND_NS 1000000000ull
#define BEGIN_NS  (20 * SECOND_NS) /* to load the library */

struct fetch {
	pid_t pid, owner;
	int socket;
};

void fetch_free(struct fetch *fetch)
{
	if (!fetch)
		return;
	close(fetch->socket);
	if (fetch->owner == getpid()) {
		kill(fetch->pid, SIGKILL);
		while (waitpid(fetch->pid, NULL, 0) < 0 && errno == EINTR)
			continue;
	}
	free(fetch);
}

/* *fd: -1 for none. 0; -EAGAIN, -EIO. */
static int receive(struct fetch *fetch, uint64_t until_ns, struct fetch_result *answer, int *fd)
{
	*fd = -1;
	if (!descriptor_wait(fetch->socket, until_ns))
		return -EAGAIN;
	return message_receive(fetch->socket, answer, sizeof(*answer), fd, 1, NULL) ==
			       sizeof(*answer)
		       ? 0
		       : -EIO;
}

/* Waits for the message that says that it can fetch files. */
static int begin_wait(struct fetch *fetch)
{
	struct fetch_result answer;
	int fd, err = receive(fetch, clock_ns(CLOCK_MONOTONIC) + BEGIN_NS, &answer, &fd);

	if (err)
		return error_set(-EIO, "the process that fetches debug files does not begin");
	descriptor_close(fd);
	if (answer.result == -ELIBACC)
		return error_set(-ELIBACC, "%sdebuginfod-find is not installed",
				 library_opener() ? LIBRARY " or " : "");
	return answer.result ? error_set(answer.result, "libdebuginfod cannot be used") : 0;
}

int fetch_new(struct fetch **out, const char *urls)
{
	struct fetch *fetch = calloc(1, sizeof(*fetch));

	if (!fetch)
		return -ENOMEM;
	fetch->owner = getpid();
	fetch->socket = message_child(&fetch->pid, SOCK_SEQPACKET, fetch_child_run,
				      (void *)(uintptr_t)urls);
	int err = fetch->socket < 0 ? fetch->socket : 0;
	if (err) {
		free(fetch);
		return err;
	}
	err = begin_wait(fetch);
	if (err)
		fetch_free(fetch);
	else
		*out = fetch;
	return err;
}

int fetch_ask(struct fetch *fetch, uint32_t number, const char *build_id)
{
	struct fetch_question question = {.number = number};
	ssize_t sent;

	snprintf(question.build_id, sizeof(question.build_id), "%s", build_id);
	do
		sent = send(fetch->socket, &question, sizeof(question),
			    MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? error_errno() : 0;
}

int fetch_answer(struct fetch *fetch, uint64_t until_ns, uint32_t *number, int *fd)
{
	struct fetch_result answer;
	int err = receive(fetch, until_ns, &answer, fd);

	if (err)
		return err;
	*number = answer.number;
	if (*fd < 0)
		*fd = answer.result < 0 ? answer.result : -EIO;
	return 0;
}
