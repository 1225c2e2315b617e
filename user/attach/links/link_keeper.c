/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/links/link_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/links/links.h"
#include "attach/links/perf_uprobe.h"
#include "proc/container/cgroup.h"
#include "proc/patience.h"
#include "proc/priority.h"
#include "proc/process.h"
#include "proc/sandbox/privileges.h"
#include "util/array.h"
#include "util/buffer.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/message.h"

/* The protocol between the owner and the process that holds the links. */
#define LINKS_SITES_MAX (1u << 20) /* per request */
#define LINKS_PATH_MAX  128        /* bytes of a path, including its NUL */

enum links_op { LINKS_ADD, LINKS_DROP, LINKS_CONFINE, LINKS_SWEEP, LINKS_END };

/*
 * LINKS_ADD comes with two descriptors, the program's and the file's, and is followed by count
 * offsets, count cookies and, with has_semaphores, count offsets of semaphores. LINKS_DROP
 * is followed by count group ids, LINKS_SWEEP by count bytes of a path. Each request is answered,
 * except LINKS_END.
 */
struct links_request {
	uint32_t op;
	uint32_t backend, kind; /* LINKS_ADD */
	int32_t pid;            /* LINKS_ADD */
	uint32_t group;         /* LINKS_ADD */
	uint32_t count;
	int32_t wait;            /* LINKS_DROP */
	int32_t attaches;        /* LINKS_CONFINE */
	uint32_t has_semaphores; /* LINKS_ADD */
	uint32_t pad;
};

struct links_answer {
	int32_t err;    /* 0, -errno */
	uint32_t made;  /* LINKS_ADD: descriptors */
	uint64_t where; /* LINKS_ADD: the offset that the kernel refused */
};

/* The process that holds the links; link_keeper.h explains its purpose. */

/* Processes that close links side by side. */
#define CLOSERS 8u
/* Between two looks at an owner that says nothing. */
#define OWNER_LOOK_MS 1000

#define PROCS "/cgroup.procs"

struct group {
	uint32_t id;
	int *fds;
	size_t count;
};

struct keeper {
	int socket, owner; /* the owner's pidfd */
	pid_t owner_pid;
	struct group *groups;
	size_t count, capacity;
	char swept[LINKS_PATH_MAX]; /* a file of the owner's to remove; "": none */
};

/* The owner requested the end, or has ended: on exit the kernel removes all links. */
static void keeper_end(void)
{
	_exit(0);
}

/* The owner has ended without LINKS_END. */
static void keeper_abandoned(const struct keeper *keeper)
{
	if (keeper->swept[0])
		unlink(keeper->swept);
	keeper_end();
}

/* Fields of /proc/PID/stat, counted from the state, which is number 3 in proc(5). */
#define STAT_FLAGS   6
#define STAT_SIGNALS 28
#define PF_EXITING   0x4u

/*
 * Will the owner never run its own code again: is SIGKILL pending for it, or is it in exit()? A
 * task that waits in the kernel for a file system that does not answer stays in that state for as
 * long as it likes, and neither the pidfd nor the socket shows anything. stat takes no lock that
 * such a task may hold.
 */
static bool owner_is_lost(const struct keeper *keeper)
{
	unsigned long long fields[STAT_SIGNALS + 1] = {0};
	char path[40], text[1024], *at;
	ssize_t got = -1;

	snprintf(path, sizeof(path), "/proc/%d/stat", keeper->owner_pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		got = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[got > 0 ? got : 0] = '\0';
	at = strrchr(text, ')'); /* the end of the name; ") STATE" comes before the numbers */
	if (!at || strlen(at) < 4)
		return 0;
	at += 3;
	for (size_t i = 1; i <= STAT_SIGNALS; i++)
		fields[i] = strtoull(at, &at, 10);
	return (fields[STAT_FLAGS] & PF_EXITING) || fields[STAT_SIGNALS] & 1u << (SIGKILL - 1);
}

/* Waits for input, or for the end of the owner. */
static void keeper_wait(const struct keeper *keeper)
{
	struct pollfd fds[] = {{.fd = keeper->socket, .events = POLLIN},
			       {.fd = keeper->owner, .events = POLLIN}};

	while (poll(fds, 2, OWNER_LOOK_MS) <= 0)
		if (owner_is_lost(keeper))
			keeper_abandoned(keeper);
	/*
	 * Other children of the owner may hold copies of the socket, so only the pidfd shows that
	 * the owner has ended.
	 */
	if (fds[1].revents)
		keeper_abandoned(keeper);
}

static void bytes_read(const struct keeper *keeper, void *out, size_t size)
{
	for (size_t at = 0; at < size;) {
		keeper_wait(keeper);
		ssize_t got = read(keeper->socket, (char *)out + at, size - at);
		if (got > 0)
			at += (size_t)got;
		else if (!got || errno != EINTR)
			keeper_abandoned(keeper);
	}
}

/*
 * Reads the request's fixed part, and the descriptors passed with it (-1: none). If the limit of
 * descriptors allows one only, it arrives alone: the caller closes it.
 */
static void request_read(const struct keeper *keeper, struct links_request *request, int fds[2])
{
	keeper_wait(keeper);
	ssize_t got = message_receive(keeper->socket, request, sizeof(*request), fds, 2, NULL);
	if (got <= 0)
		keeper_abandoned(keeper);
	bytes_read(keeper, (char *)request + got, sizeof(*request) - (size_t)got);
}

static void answer(const struct keeper *keeper, const struct links_answer *text)
{
	if (send(keeper->socket, text, sizeof(*text), MSG_NOSIGNAL) != sizeof(*text))
		keeper_abandoned(keeper);
}

static int fds_compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Closes all descriptors except these. */
static void others_close(int *fds, size_t count)
{
	unsigned int from = 0;

	qsort(fds, count, sizeof(*fds), fds_compare);
	for (size_t i = 0; i < count; i++) {
		if (fds[i] < 0)
			continue;
		if ((unsigned int)fds[i] > from)
			syscall(SYS_close_range, from, fds[i] - 1, 0);
		from = fds[i] + 1;
	}
	syscall(SYS_close_range, from, ~0u, 0);
}

/* Each perf event takes a descriptor: raise the soft limit to the hard limit. */
static void descriptors_allow(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/*
 * Killing this process frees less memory than killing any other, so exclude it from the OOM killer.
 * Without the privilege it is treated like other processes.
 */
static void oom_avoid(void)
{
	_cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "-1000", 5) < 0)
		errno = 0;
}

/* Moves this process to the root of one hierarchy. */
static void hierarchy_leave(const struct cgroup_line *line)
{
	size_t mount_bytes, room = sizeof(PROCS);
	char *directory = cgroup_directory(line, line->path_bytes, &mount_bytes), *path = NULL;
	int fd = -1;

	/* A move makes the kernel wait for all processors. */
	if (directory && directory[mount_bytes] && directory[mount_bytes + 1])
		path = realloc(directory, mount_bytes + room);
	if (path) {
		directory = path;
		memcpy(path + mount_bytes, PROCS, room);
		fd = open(path, O_WRONLY | O_CLOEXEC);
	}
	if (fd >= 0) {
		if (write(fd, "0", 1) < 0)
			errno = 0;
		close(fd);
	}
	free(directory);
}

/*
 * All processes of a control group may be killed at once: by cgroup.kill, by a runtime or a service
 * manager. This one must not be while it creates a link, and leaves. It ends when the owner does.
 */
static void cgroups_leave(void)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	struct cgroup_line line;

	if (!process_file_read(getpid(), "cgroup", CGROUP_TEXT_MAX, &text))
		for (const char *next = (const char *)text.data; cgroup_next(&next, &line);)
			hierarchy_leave(&line);
}

/* Creating many links may take long: has the owner ended meanwhile, or shut down the socket? */
static void owner_look(const struct keeper *keeper)
{
	struct pollfd ends[] = {{.fd = keeper->owner, .events = POLLIN}, {.fd = keeper->socket}};

	if (poll(ends, 2, 0) > 0)
		keeper_abandoned(keeper);
}

static void group_make(const struct keeper *keeper, const struct links_request *request,
		       const int fds[2], const struct links_sites *sites, struct group *group,
		       struct links_answer *out)
{
	enum links_kind kind = (enum links_kind)request->kind;
	int is_perf = request->backend == LINKS_PERF;
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[1]);
	for (size_t i = 0; i < (is_perf ? request->count : 1); i++) {
		int fd = is_perf ? perf_uprobe_link(fds[0], path, request->pid, kind, sites, i)
				 : links_multi_create(fds[0], kind, path, request->pid, sites);

		owner_look(keeper);
		if (fd < 0) {
			out->err = fd;
			out->where = sites->offsets[i];
			return;
		}
		group->fds[group->count++] = fd;
		out->made++;
	}
}

static void group_add(struct keeper *keeper, const struct links_request *request, const int fds[2])
{
	struct links_answer out = {0};
	struct group group = {.id = request->group};
	size_t arrays = request->has_semaphores ? 3 : 2, count = request->count;
	uint64_t *offsets;

	if (!request->count || request->count > LINKS_SITES_MAX)
		keeper_end();
	offsets = calloc(count, arrays * sizeof(*offsets));
	group.fds = calloc(count, sizeof(*group.fds));
	if (!offsets || !group.fds)
		keeper_end(); /* the rest of the request cannot be read */
	bytes_read(keeper, offsets, count * arrays * sizeof(*offsets));
	out.err = ARRAY_GROW(keeper->groups, keeper->capacity, keeper->count);
	if (!out.err)
		group_make(keeper, request, fds,
			   &(struct links_sites){offsets, offsets + count,
						 arrays == 3 ? offsets + 2 * count : NULL, count},
			   &group, &out);
	if (group.count)
		keeper->groups[keeper->count++] = group;
	else
		free(group.fds);
	free(offsets);
	answer(keeper, &out);
}

/* Removes the groups from the list. *out receives their descriptors, with space for one more. */
static size_t groups_take(struct keeper *keeper, const uint32_t *ids, size_t count, int **out)
{
	size_t total = 0, at = 0, kept = 0;

	for (size_t i = 0; i < keeper->count; i++)
		total += keeper->groups[i].count;
	*out = malloc((total + 1) * sizeof(**out));
	if (!*out)
		keeper_end();
	for (size_t i = 0; i < keeper->count; i++) {
		struct group *group = &keeper->groups[i];
		size_t k = 0;

		while (k < count && ids[k] != group->id)
			k++;
		if (k == count) {
			keeper->groups[kept++] = *group;
			continue;
		}
		memcpy(*out + at, group->fds, group->count * sizeof(**out));
		at += group->count;
		free(group->fds);
	}
	keeper->count = kept;
	return at;
}

/* Keeps only these descriptors, reports that, and exits when the parent has closed its copies. */
static void closer_run(int *fds, size_t count, int pipe_fd)
{
	char byte = 0;

	fds[count] = pipe_fd;
	others_close(fds, count + 1);
	if (write(pipe_fd, &byte, 1) == 1)
		while (read(pipe_fd, &byte, 1) < 0 && errno == EINTR)
			;
	_exit(0);
}

/*
 * A process that closes a share of the descriptors once our end of the pipe is closed: number k of
 * count, k + CLOSERS... Our end; -1: there is none.
 */
static int closer_start(const int *fds, size_t count, size_t k)
{
	int ends[2], *share = calloc(count + 1, sizeof(*share));
	size_t kept = 0;
	char byte;

	if (!share || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		free(share);
		return -1;
	}
	for (; k < count; k += CLOSERS)
		share[kept++] = fds[k];
	pid_t child = fork();
	if (!child)
		closer_run(share, kept, ends[1]);
	free(share);
	close(ends[1]);
	if (child > 0)
		while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
			;
	return ends[0];
}

/*
 * The kernel removes the breakpoints of a link at once, but then waits for tens of milliseconds.
 * Links are closed side by side, so that the target does not run into those of the next one
 * meanwhile. If fork fails, the descriptors are closed in this process, which takes longer.
 */
static void fds_close(const int *fds, size_t count, int wait)
{
	int pipes[CLOSERS];

	for (size_t k = 0; k < CLOSERS; k++)
		pipes[k] = k < count ? closer_start(fds, count, k) : -1;
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	for (size_t k = 0; k < CLOSERS; k++)
		descriptor_close(pipes[k]);
	/* SIGCHLD is ignored: this returns when there is no child any more. */
	while (wait && (waitpid(-1, NULL, 0) >= 0 || errno == EINTR))
		;
}

static void groups_drop(struct keeper *keeper, const struct links_request *request)
{
	const struct links_answer out = {0};
	uint32_t *ids;
	int *fds;

	if (request->count > LINKS_SITES_MAX)
		keeper_end();
	ids = calloc(request->count + 1, sizeof(*ids));
	if (!ids)
		keeper_end();
	bytes_read(keeper, ids, request->count * sizeof(*ids));
	size_t count = groups_take(keeper, ids, request->count, &fds);
	if (count)
		fds_close(fds, count, request->wait);
	free(fds);
	free(ids);
	answer(keeper, &out);
}

static void path_take(struct keeper *keeper, const struct links_request *request)
{
	const struct links_answer out = {0};
	char path[LINKS_PATH_MAX] = "";

	if (request->count >= sizeof(path))
		keeper_end();
	bytes_read(keeper, path, request->count);
	memcpy(keeper->swept, path, sizeof(path));
	answer(keeper, &out);
}

static void keeper_begin(const struct keeper *keeper)
{
	int kept[] = {keeper->socket, keeper->owner};
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGCHLD, SIG_IGN);
	priority_keep();
	prctl(PR_SET_NAME, LINK_KEEPER_NAME);
	/*
	 * A reader of the owner's output must not wait for us to close it; nor do we keep a file
	 * system busy.
	 */
	others_close(kept, 2);
	if (chdir("/"))
		errno = 0;
	descriptors_allow();
	oom_avoid();
	cgroups_leave();
}

/* The main function of the process; never returns. *owner: a pidfd of its creator, or -1. */
static void link_keeper_run(void *owner, int socket, pid_t parent)
{
	struct keeper keeper = {
		.socket = socket, .owner = *(const int *)owner, .owner_pid = parent};
	struct links_answer out = {0};
	struct links_request request;
	int fds[2];

	keeper_begin(&keeper);
	for (;;) {
		request_read(&keeper, &request, fds);
		switch (request.op) {
		case LINKS_ADD:
			group_add(&keeper, &request, fds);
			break;
		case LINKS_DROP:
			groups_drop(&keeper, &request);
			break;
		case LINKS_CONFINE:
			out.err = privileges_drop(0, request.attaches);
			answer(&keeper, &out);
			break;
		case LINKS_SWEEP:
			path_take(&keeper, &request);
			break;
		default:
			keeper_end();
		}
		descriptor_close(fds[0]);
		descriptor_close(fds[1]);
	}
}

#define LOOK_MS 50u /* between two looks whether we are to end */

struct link_keeper {
	pid_t pid;
	int socket;
	uint32_t next_group;
	size_t count; /* descriptors of links that it holds */
	int left;     /* the kernel made it wait when we were to end: it ends by itself */
};

int link_keeper_new(struct link_keeper **out)
{
	struct link_keeper *holder = calloc(1, sizeof(*holder));

	if (!holder)
		return -ENOMEM;
	int owner = (int)syscall(SYS_pidfd_open, getpid(), 0);
	holder->socket = message_child(&holder->pid, SOCK_STREAM, link_keeper_run, &owner);
	descriptor_close(owner);
	if (holder->socket < 0) {
		int err = holder->socket;

		free(holder);
		return error_set(err, "the process that holds the probes cannot be started");
	}
	*out = holder;
	return 0;
}

static int holder_gone(void)
{
	return error_set(-EOWNERDEAD,
			 "the process that holds the probes (" LINK_KEEPER_NAME ") was killed: no "
			 "probe is in place any more");
}

static int holder_left(void)
{
	pid_t slow = patience_slow();

	if (slow)
		return error_set(-EINTR,
				 "the tracer is to end, and the kernel still waits for PID %d, "
				 "which keeps its memory map locked",
				 (int)slow);
	return error_set(-EINTR, "the tracer is to end, and the kernel has not finished");
}

static int bytes_send(struct link_keeper *holder, const void *data, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t sent =
			send(holder->socket, (const char *)data + at, size - at, MSG_NOSIGNAL);

		if (sent >= 0)
			at += (size_t)sent;
		else if (errno != EINTR)
			return holder_gone();
	}
	return 0;
}

/* fds: two descriptors to pass along, or NULL. */
static int request_send(struct link_keeper *holder, const struct links_request *request,
			const int *fds)
{
	const struct iovec part = {(void *)(uintptr_t)request, sizeof(*request)};

	if (holder->left)
		return holder_left();
	ssize_t sent = message_send(holder->socket, &part, 1, fds, fds ? 2 : 0);
	if (sent <= 0)
		return holder_gone();
	return bytes_send(holder, (const char *)request + sent, sizeof(*request) - (size_t)sent);
}

/*
 * Waits for an answer, while the kernel places or removes probes. It may wait for the lock of any
 * process that maps the file, without end. We do not once we are to end: the process ends by itself
 * when the kernel lets it, and removes the links.
 */
static int answer_wait(struct link_keeper *holder)
{
	unsigned int looks = 0;

	do {
		uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + LOOK_MS * 1000000ull;

		if (descriptor_wait(holder->socket, until_ns))
			return 0;
		looks = patience_is_ending() ? looks + 1 : 0;
	} while (looks < LINKS_END_MS / LOOK_MS);
	shutdown(holder->socket, SHUT_RDWR);
	holder->left = 1;
	return holder_left();
}

static int answer_read(struct link_keeper *holder, struct links_answer *out)
{
	for (size_t at = 0; at < sizeof(*out);) {
		int err = answer_wait(holder);

		if (err)
			return err;
		ssize_t got = read(holder->socket, (char *)out + at, sizeof(*out) - at);
		if (got > 0)
			at += (size_t)got;
		else if (!got || errno != EINTR)
			return holder_gone();
	}
	return 0;
}

/* A process becomes a zombie only after its files are closed. 1: it has ended. */
static int end_wait(pid_t pid, int wait_ms)
{
	uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)wait_ms * 1000000, now;
	struct pollfd poll_end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
	int ended = 0;

	while (poll_end.fd >= 0 && !ended && (now = clock_ns(CLOCK_MONOTONIC)) < until_ns)
		ended = poll(&poll_end, 1, (int)((until_ns - now) / 1000000) + 1) == 1;
	descriptor_close(poll_end.fd);
	return ended;
}

int link_keeper_free(struct link_keeper *holder, int wait_ms)
{
	const struct links_request request = {.op = LINKS_END};

	if (!holder)
		return 1;
	if (!holder->left)
		request_send(holder, &request, NULL);
	close(holder->socket);
	int ended = !holder->left && (wait_ms < 0 || (wait_ms && end_wait(holder->pid, wait_ms)));
	while (ended && waitpid(holder->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(holder);
	return ended;
}

pid_t link_keeper_pid(const struct link_keeper *holder)
{
	return holder ? holder->pid : 0;
}

int link_keeper_check(const struct link_keeper *holder)
{
	struct pollfd poll_end = {.fd = holder->socket, .events = POLLIN};

	return !holder->left && poll(&poll_end, 1, 0) == 1 ? holder_gone() : 0;
}

/* Sends a request that is followed by size bytes. */
static int request_do(struct link_keeper *holder, const struct links_request *request,
		      const void *data, size_t size)
{
	struct links_answer answer;
	int err = request_send(holder, request, NULL);

	err = err ?: bytes_send(holder, data, size) ?: answer_read(holder, &answer);
	return err ?: answer.err;
}

int link_keeper_confine(struct link_keeper *holder, int attaches)
{
	const struct links_request request = {.op = LINKS_CONFINE, .attaches = attaches};

	int err = request_do(holder, &request, NULL, 0);

	/* One that was left has nothing to do any more but to end. */
	return holder->left ? 0 : err;
}

int link_keeper_sweep(struct link_keeper *holder, const char *path)
{
	const struct links_request request = {.op = LINKS_SWEEP, .count = (uint32_t)strlen(path)};

	return request.count >= LINKS_PATH_MAX ? -ENAMETOOLONG
					       : request_do(holder, &request, path, request.count);
}

size_t link_keeper_count(const struct link_keeper *holder)
{
	return holder ? holder->count : 0;
}

static int spec_refused(const struct links_spec *spec, const struct links_answer *answer)
{
	if (spec->backend == LINKS_PERF)
		return error_set(answer->err, "uprobe at offset 0x%llx: %s",
				 (unsigned long long)answer->where, strerror(-answer->err));
	return error_set(answer->err, "uprobe_multi link of %zu sites: %s", spec->sites.count,
			 strerror(-answer->err));
}

int link_keeper_add(struct link_keeper *holder, const struct links_spec *spec, uint32_t *group,
		    size_t *made)
{
	const struct links_request request = {
		.op = LINKS_ADD,
		.backend = spec->backend,
		.kind = spec->kind,
		.pid = spec->pid,
		.group = holder->next_group++,
		.count = (uint32_t)spec->sites.count,
		.has_semaphores = spec->sites.semaphores != NULL,
	};
	const size_t bytes = spec->sites.count * sizeof(uint64_t);
	const int fds[] = {spec->program, spec->file};
	struct links_answer answer = {0};

	*group = request.group;
	*made = 0;
	if (!spec->sites.count || spec->sites.count > LINKS_SITES_MAX)
		return spec->sites.count ? -E2BIG : 0;
	int err = request_send(holder, &request, fds)
		  ?: bytes_send(holder, spec->sites.offsets, bytes)
		  ?: bytes_send(holder, spec->sites.cookies, bytes);
	if (!err && request.has_semaphores)
		err = bytes_send(holder, spec->sites.semaphores, bytes);
	err = err ?: answer_read(holder, &answer);
	if (err)
		return err;
	*made = answer.made;
	holder->count += answer.made;
	return answer.err ? spec_refused(spec, &answer) : 0;
}

void link_keeper_drop(struct link_keeper *holder, const uint32_t *groups, size_t count,
		      size_t descriptors, int wait)
{
	const struct links_request request = {
		.op = LINKS_DROP, .count = (uint32_t)count, .wait = wait};

	if (!count)
		return;
	/* If the holder has ended, so have the links. */
	request_do(holder, &request, groups, count * sizeof(*groups));
	holder->count -= descriptors;
}
