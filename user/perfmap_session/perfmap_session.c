/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order matters, so that no entry is missed: probes are placed, then the process becomes a target,
 * then its existing files and images are read. Events that happen meanwhile stay in the ring buffer
 * and are handled after that, so that the newest entry wins.
 */
#include "perfmap_session/perfmap_session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "links/links.h"
#include "links/obstacles.h"
#include "perfmap_session/perfmap_state.h"
#include "process/memory.h"
#include "process/process.h"
#include "process/tmp_dir.h"

#define DRAIN_BATCH (1u << 16)
#define READ_BATCH  (8u << 20) /* bytes of a file at once */
/* Mappings are read this often, for at most 1/50 of the time. */
#define SCAN_PERIOD_NS 500000000ull
#define SCAN_FIRST_NS  20000000ull
#define SCAN_SHARE     50
#define YOUNG_NS       1000000000ull

static int record_handle(void *context, void *record, size_t size)
{
	struct perfmap_session *session = context;
	int err = perfmaps_feed(session->maps, record, size);

	return err == -ENOMEM ? err : 0;
}

static int member_add(struct perfmap_session *session, struct perfmap_process *process, pid_t pid,
		      struct perfmap_member **out)
{
	struct perfmap_member *member;
	int err = array_reserve(&session->members, &session->capacity, session->count, 1,
				sizeof(member));

	if (err)
		return err;
	member = calloc(1, sizeof(*member));
	if (!member)
		return -ENOMEM;
	member->pid = pid;
	member->process = process;
	process->user = member;
	session->members[session->count++] = member;
	*out = member;
	return perfmap_member_open(member);
}

/*
 * The page of the name was not resident when the call was made. The string may have changed since,
 * but no other source exists.
 */
static int name_read(void *context, struct perfmap_process *process, uint64_t address,
		     struct buffer *name)
{
	char piece[64];

	(void)context;
	while (name->size < PERFMAP_NAME_MAX) {
		/* Not across a page boundary: the next page may not be mapped. */
		size_t capacity = 4096 - address % 4096,
		       bytes = capacity < sizeof(piece) ? capacity : sizeof(piece), length;
		int err = memory_read(process->tgid, address, piece, bytes);

		if (err)
			return err;
		length = strnlen(piece, bytes);
		err = buffer_append(name, piece, length);
		if (err || length < bytes)
			return err;
		address += bytes;
	}
	name->size = PERFMAP_NAME_MAX;
	return 0;
}

static int image_read(void *context, struct perfmap_process *process, uint64_t address,
		      uint64_t bytes, struct buffer *image)
{
	int err = buffer_reserve(image, bytes);

	(void)context;
	if (!err)
		err = memory_read(process->tgid, address, image->data, bytes);
	if (!err)
		image->size = bytes;
	return err;
}

/* A forked child copies its parent's map, that is, our table of the parent; or it copies a file. */
static int file_copy(void *context, struct perfmap_process *process, const char *name, size_t bytes)
{
	struct perfmap_process *parent = process->parent;
	struct perfmap_member *member = process->user, *of = parent ? parent->user : NULL;
	char path[64], expected[64];
	struct perfmap_follow *follow;
	int fd, err;

	(void)context;
	snprintf(path, sizeof(path), "%.*s", (int)bytes, name);
	snprintf(expected, sizeof(expected), "/tmp/perf-%d.map", of ? of->ns_pid : -1);
	if (of && !strcmp(path, expected))
		return perfmap_process_copy(process, parent);
	/* Another file: only in its /tmp, where its owner and type can be checked. */
	if (!member || member->places.target < 0 || bytes >= sizeof(path) ||
	    strncmp(path, "/tmp/", 5) || strchr(path + 5, '/') || !path[5])
		return -EINVAL;
	fd = tmp_dir_file(member->places.at[member->places.target].directory, path + 5, member->uid,
			  O_RDONLY);
	if (fd < 0)
		return fd;
	err = perfmap_follow_new(&follow, fd, 0, -1);
	if (err)
		return err;
	err = perfmap_follow_read(follow, process, UINT64_MAX);
	err = err ? err : follow->failed;
	perfmap_follow_free(follow, -1);
	return err;
}

static void process_changes(void *context, struct perfmap_process *process)
{
	struct perfmap_session *session = context;

	if (process->user)
		perfmap_member_settle(process->user, session->inotify);
}

static void child_add(struct perfmap_session *session, struct perfmap_process *process)
{
	struct perfmap_member *parent = process->parent ? process->parent->user : NULL, *member;
	int gone = member_add(session, process, process->tgid, &member);

	member = process->user;
	if (!member)
		return;
	/* A child that is gone cannot be inspected: its map is installed as its parent's. */
	if (gone && parent)
		perfmap_member_inherit(member, parent);
	else
		perfmap_rivals_find(session, member);
	member->python = parent && parent->python;
	member->advice = parent ? parent->advice : NULL;
	member->probed = parent ? parent->probed : 0;
}

static void member_finish(struct perfmap_session *session, struct perfmap_member *member)
{
	if (!member->finished)
		perfmap_member_settle(member, session->inotify);
	member->finished = 1;
}

static void process_changed(void *context, struct perfmap_process *process, uint32_t type)
{
	struct perfmap_session *session = context;
	struct perfmap_member *member = process->user;

	if (type == EVENT_FORK && !member)
		child_add(session, process);
	else if (type == EVENT_EXIT && member)
		member_finish(session, member);
	/* Privileges for new probes were dropped; files that are probed need none. */
	else if (type == EVENT_EXEC && member && !perfmap_member_renew(member, session->inotify) &&
		 perfmap_probe(session, member))
		log_info("PID %d runs another program now, in which no probe can be placed",
			 member->pid);
}

int perfmap_session_new(struct perfmap_session **out, const struct perfmap_session_opts *opts,
			const char **remedy)
{
	struct perfmap_session *session = calloc(1, sizeof(*session));
	struct perfmaps_hooks hooks = {.name_read = name_read,
				       .image_read = image_read,
				       .file_copy = file_copy,
				       .process_changes = process_changes,
				       .process_changed = process_changed,
				       .context = session};
	struct perfmap_attach_opts attach = {
		.ring_bytes = opts->ring_bytes, .record = record_handle, .context = session};
	int err;

	error_clear();
	*remedy = NULL;
	if (!session)
		return -ENOMEM;
	session->opts = *opts;
	/* Without inotify, all files are read at every drain. */
	session->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	links_silence_libbpf();
	err = features_probe(&session->features);
	if (!err)
		err = features_check(&session->features, remedy);
	if (!err)
		err = perfmaps_new(&session->maps, &hooks);
	if (!err)
		perfmaps_budget(session->maps, opts->budget);
	if (!err)
		err = perfmap_attach_new(&session->attach, &session->features, &attach);
	/* features_check() has explained its own errors. */
	if (err && session->maps)
		obstacle_explain(OBSTACLE_LOAD, err, remedy);
	if (err) {
		perfmap_session_free(session);
		return err;
	}
	*out = session;
	return 0;
}

void perfmap_session_free(struct perfmap_session *session)
{
	if (!session)
		return;
	perfmap_attach_free(session->attach);
	for (size_t i = 0; i < session->count; i++)
		perfmap_member_close(session->members[i], session->inotify);
	for (size_t i = 0; i < session->file_count; i++)
		elf_file_close(session->files[i].file);
	if (session->inotify >= 0)
		close(session->inotify);
	free(session->members);
	free(session->files);
	perfmaps_free(session->maps);
	free(session);
}

int perfmap_session_add(struct perfmap_session *session, pid_t pid)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	struct perfmap_process *process;
	struct perfmap_member *member;
	int err;

	error_clear();
	err = perfmaps_add(session->maps, pid, &process);
	member = err ? NULL : process->user;
	/* A command that is started may exec more than once. */
	if (!err)
		err = member ? perfmap_member_renew(member, session->inotify)
			     : member_add(session, process, pid, &member);
	if (err)
		return err;
	member->named = 1;
	/* From here on records are kept; only files shared with other processes have probes yet. */
	err = perfmap_attach_target(session->attach, pid);
	if (err)
		return err;
	err = perfmap_probe(session, member);
	if (err)
		return obstacle_tell(OBSTACLE_PROBE, err);
	perfmap_rivals_find(session, member);
	if (session->opts.merge)
		err = perfmap_member_read_ancestors(member);
	perfmap_member_find_open(member, session->inotify, session->opts.merge);
	perfmap_member_find_files(member, session->inotify, session->opts.merge);
	if (!err)
		err = perfmap_member_read(member, UINT64_MAX);
	if (!err)
		err = perfmap_member_scan(member, session->inotify, PERFMAP_EXPIRE_ALL);
	if (!err)
		err = perfmap_member_read(member, UINT64_MAX);
	if (err)
		return err;
	if (member->files_refused)
		log_info("PID %d: its map file is not read: %s", pid, member->file_reason);
	log_info("attached to PID %d (%s): %d probes, perf map functions of CPython: %s; %zu "
		 "entries to begin with; %llu ms",
		 pid, member->name, member->probed, member->python ? "yes" : "no",
		 perfmap_table_count(process->table),
		 (unsigned long long)((clock_ns(CLOCK_MONOTONIC) - start) / 1000000));
	/* A command that is started has run nothing yet. */
	if (member->advice && process->file != PERFMAP_FILE_OPEN && !member->follow_count &&
	    process_age_ns(pid) > YOUNG_NS)
		perfmap_session_advise(member);
	return 0;
}

void perfmap_session_advise(struct perfmap_member *member)
{
	const struct perfmap_process *process = member->process;

	if (member->advised || perfmap_table_count(process->table) || process->expired ||
	    process->refused || process->missed || process->execs)
		return;
	member->advised = 1;
	log_info("PID %d has no entries: %s", member->pid,
		 member->advice ?: "nothing in it is known to name code (--perf-map-symbol)");
}

static void growth_take(struct perfmap_session *session)
{
	_Alignas(struct inotify_event) char events[4096];
	ssize_t bytes;

	while (session->inotify >= 0 &&
	       (bytes = read(session->inotify, events, sizeof(events))) > 0)
		for (ssize_t at = 0; at < bytes;) {
			const struct inotify_event *event = (void *)(events + at);

			for (size_t i = 0; i < session->count; i++)
				perfmap_member_mark(session->members[i], event->wd);
			at += sizeof(*event) + event->len;
		}
}

static void ends_watch(struct perfmap_session *session)
{
	for (size_t i = 0; i < session->count; i++) {
		struct perfmap_member *member = session->members[i];
		struct pollfd poll_fd = {.fd = member->pidfd, .events = POLLIN};

		if (member->pidfd < 0 || poll(&poll_fd, 1, 0) <= 0)
			continue;
		/* Its last records are in the ring buffer by now. */
		while (stream_drain(perfmap_attach_stream(session->attach), DRAIN_BATCH) >=
		       (int)DRAIN_BATCH)
			;
		member->process->exited = 1;
		member_finish(session, member);
		close(member->pidfd);
		member->pidfd = -1;
	}
}

/* More often at first, so that the jitdump of a program that ends soon is found. */
static uint64_t scan_period_ns(uint64_t age_ns)
{
	return age_ns / 4 < SCAN_FIRST_NS    ? SCAN_FIRST_NS
	       : age_ns / 4 < SCAN_PERIOD_NS ? age_ns / 4
					     : SCAN_PERIOD_NS;
}

static int scan_when_due(struct perfmap_session *session, uint64_t now)
{
	int err = 0;

	for (size_t i = 0; i < session->count && !err; i++) {
		struct perfmap_member *member = session->members[i];
		uint64_t pause = member->scan_cost_ns * SCAN_SHARE,
			 period = scan_period_ns(now - member->opened_ns);

		if (now - member->scanned_ns < (pause < period ? period : pause))
			continue;
		member->scanned_ns = now;
		perfmap_member_find_files(member, session->inotify, 1);
		/* A program that ends frees its code first: names are kept for a while. */
		err = perfmap_member_scan(member, session->inotify,
					  now - member->expired_ns >= SCAN_PERIOD_NS
						  ? PERFMAP_EXPIRE_LATE
						  : PERFMAP_EXPIRE_NONE);
	}
	return err;
}

int perfmap_session_drain(struct perfmap_session *session)
{
	int count = stream_drain(perfmap_attach_stream(session->attach), DRAIN_BATCH), err = 0;

	if (count < 0)
		return count;
	err = perfmap_attach_check(session->attach);
	growth_take(session);
	for (size_t i = 0; i < session->count && !err; i++)
		err = perfmap_member_read(session->members[i], READ_BATCH);
	if (!err && count < (int)DRAIN_BATCH) {
		ends_watch(session);
		err = scan_when_due(session, clock_ns(CLOCK_MONOTONIC));
	}
	return err ? err : count;
}

int perfmap_session_refresh(struct perfmap_session *session)
{
	int err = 0;

	while (stream_drain(perfmap_attach_stream(session->attach), DRAIN_BATCH) >=
	       (int)DRAIN_BATCH)
		;
	ends_watch(session);
	growth_take(session);
	for (size_t i = 0; i < session->count && !err; i++) {
		struct perfmap_member *member = session->members[i];

		perfmap_member_find_files(member, session->inotify, 1);
		err = perfmap_member_read(member, UINT64_MAX);
		if (!err)
			err = perfmap_member_scan(member, session->inotify, PERFMAP_EXPIRE_ALL);
		if (!err)
			err = perfmap_member_read(member, UINT64_MAX);
	}
	return err;
}

int perfmap_session_install(struct perfmap_session *session, struct perfmap_member *member)
{
	/* There are no entries: do not replace a map file that it may have. */
	if (!perfmap_table_count(member->process->table) && member->places.version == UINT64_MAX)
		return 0;
	if (member->process->evicted) /* its table was freed; the installed map is complete */
		return 0;
	return perfmap_member_install(member, session->inotify);
}

size_t perfmap_session_running(const struct perfmap_session *session)
{
	size_t running = 0;

	for (size_t i = 0; i < session->count; i++)
		running += session->members[i]->named && session->members[i]->pidfd >= 0;
	return running;
}

size_t perfmap_session_count(const struct perfmap_session *session)
{
	return session->count;
}

struct perfmap_member *perfmap_session_at(const struct perfmap_session *session, size_t index)
{
	return session->members[index];
}

size_t perfmap_session_poll_fds(const struct perfmap_session *session, int *fds, size_t capacity)
{
	size_t count = 0;

	if (session->inotify >= 0 && count < capacity)
		fds[count++] = session->inotify;
	for (size_t i = 0; i < session->count && count < capacity; i++)
		if (session->members[i]->pidfd >= 0)
			fds[count++] = session->members[i]->pidfd;
	return count;
}

int perfmap_session_loss(const struct perfmap_session *session, __u64 counts[LOSS_COUNT])
{
	return stream_loss(perfmap_attach_stream(session->attach), counts);
}
