/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order matters, so that no entry is missed: probes are placed, then the process becomes a target,
 * then its existing files and images are read. Events that happen meanwhile stay in the ring buffer
 * and are handled after that, so that the newest entry wins.
 */
#include "session/perfmap/perfmap_session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "attach/links/hints.h"
#include "attach/links/links.h"
#include "proc/memory.h"
#include "proc/process.h"
#include "proc/tmp_dir.h"
#include "session/perfmap/perfmap_state.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"

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

static int target_add(struct perfmap_session *session, struct perfmap_process *process, pid_t pid,
		      struct perfmap_target **out)
{
	struct perfmap_target *target;
	int err = ARRAY_RESERVE(NULL, session, targets, count, capacity, 1);

	if (err)
		return err;
	target = calloc(1, sizeof(*target));
	if (!target)
		return -ENOMEM;
	target->pid = pid;
	target->process = process;
	process->user = target;
	session->targets[session->count++] = target;
	*out = target;
	return perfmap_target_open(target);
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
	struct perfmap_target *target = process->user, *of = parent ? parent->user : NULL;
	char path[64], expected[64];
	struct perfmap_follow *follow;
	int fd, err;

	(void)context;
	snprintf(path, sizeof(path), "%.*s", (int)bytes, name);
	snprintf(expected, sizeof(expected), "/tmp/perf-%d.map", of ? of->ns_pid : -1);
	if (of && !strcmp(path, expected))
		return perfmap_process_copy(process, parent);
	/* Another file: only in its /tmp, where its owner and type can be checked. */
	if (!target || target->places.target < 0 || bytes >= sizeof(path) ||
	    strncmp(path, "/tmp/", 5) || strchr(path + 5, '/') || !path[5])
		return -EINVAL;
	fd = tmp_dir_file(target->places.at[target->places.target].directory, path + 5, target->uid,
			  O_RDONLY);
	if (fd < 0)
		return fd;
	err = perfmap_follow_new(&follow, fd, 0, -1);
	if (err)
		return err;
	err = perfmap_follow_read(follow, process, UINT64_MAX);
	err = err ?: follow->failed;
	perfmap_follow_free(follow, -1);
	return err;
}

static void process_changes(void *context, struct perfmap_process *process)
{
	struct perfmap_session *session = context;

	if (process->user)
		perfmap_target_settle(process->user, session->inotify);
}

static void child_add(struct perfmap_session *session, struct perfmap_process *process)
{
	struct perfmap_target *parent = process->parent ? process->parent->user : NULL, *target;
	int gone = target_add(session, process, process->tgid, &target);

	target = process->user;
	if (!target)
		return;
	/* A child that is gone cannot be inspected: its map is installed as its parent's. */
	if (gone && parent)
		perfmap_target_inherit(target, parent);
	else
		perfmap_rivals_find(session, target);
	target->python = parent && parent->python;
	target->advice = parent ? parent->advice : NULL;
	target->probed = parent ? parent->probed : 0;
}

static void target_finish(struct perfmap_session *session, struct perfmap_target *target)
{
	if (!target->finished)
		perfmap_target_settle(target, session->inotify);
	target->finished = 1;
}

static void process_changed(void *context, struct perfmap_process *process, uint32_t type)
{
	struct perfmap_session *session = context;
	struct perfmap_target *target = process->user;

	if (type == EVENT_FORK && !target)
		child_add(session, process);
	else if (type == EVENT_EXIT && target)
		target_finish(session, target);
	/* Privileges for new probes were dropped; files that are probed need none. */
	else if (type == EVENT_EXEC && target && !perfmap_target_renew(target, session->inotify) &&
		 perfmap_probe(session, target))
		log_info("PID %d runs another program now, in which no probe can be placed",
			 target->pid);
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
	err = features_probe(&session->features)
			?: features_check(&session->features, remedy)
			?: perfmaps_new(&session->maps, &hooks);
	if (!err)
		perfmaps_budget(session->maps, opts->budget);
	if (!err)
		err = perfmap_attach_new(&session->attach, &session->features, &attach);
	/* features_check() has explained its own errors. */
	if (err && session->maps)
		hint_explain(HINT_LOAD, err, remedy);
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
		perfmap_target_close(session->targets[i], session->inotify);
	for (size_t i = 0; i < session->file_count; i++)
		elf_file_close(session->files[i].file);
	if (session->inotify >= 0)
		close(session->inotify);
	free(session->targets);
	free(session->files);
	perfmaps_free(session->maps);
	free(session);
}

int perfmap_session_add(struct perfmap_session *session, pid_t pid)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	struct perfmap_process *process;
	struct perfmap_target *target;
	int err;

	error_clear();
	err = perfmaps_add(session->maps, pid, &process);
	target = err ? NULL : process->user;
	/* A command that is started may exec more than once. */
	if (!err)
		err = target ? perfmap_target_renew(target, session->inotify)
			     : target_add(session, process, pid, &target);
	if (err)
		return err;
	target->named = 1;
	/* From here on records are kept; only files shared with other processes have probes yet. */
	err = perfmap_attach_target(session->attach, pid);
	if (err)
		return err;
	err = perfmap_probe(session, target);
	if (err)
		return hint_tell(HINT_PROBE, err);
	perfmap_rivals_find(session, target);
	if (session->opts.merge)
		err = perfmap_target_read_ancestors(target);
	perfmap_target_find_open(target, session->inotify, session->opts.merge);
	perfmap_target_find_files(target, session->inotify, session->opts.merge);
	if (!err)
		err = perfmap_target_read(target, UINT64_MAX)
				?: perfmap_target_scan(target, session->inotify,
					PERFMAP_EXPIRE_ALL)
				?: perfmap_target_read(target, UINT64_MAX);
	if (err)
		return err;
	if (target->files_refused)
		log_info("PID %d: its map file is not read: %s", pid, target->file_reason);
	log_info("attached to PID %d (%s): %d probes, perf map functions of CPython: %s; %zu "
		 "entries to begin with; %llu ms",
		 pid, target->name, target->probed, target->python ? "yes" : "no",
		 perfmap_table_count(process->table),
		 (unsigned long long)((clock_ns(CLOCK_MONOTONIC) - start) / 1000000));
	/* A command that is started has run nothing yet. */
	if (target->advice && process->file != PERFMAP_FILE_OPEN && !target->follow_count &&
	    process_age_ns(pid) > YOUNG_NS)
		perfmap_session_advise(target);
	return 0;
}

void perfmap_session_advise(struct perfmap_target *target)
{
	const struct perfmap_process *process = target->process;

	if (target->advised || perfmap_table_count(process->table) || process->expired ||
	    process->refused || process->missed || process->execs)
		return;
	target->advised = 1;
	log_info("PID %d has no entries: %s", target->pid,
		 target->advice ?: "nothing in it is known to name code (--perf-map-symbol)");
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
				perfmap_target_mark(session->targets[i], event->wd);
			at += sizeof(*event) + event->len;
		}
}

static void ends_watch(struct perfmap_session *session)
{
	for (size_t i = 0; i < session->count; i++) {
		struct perfmap_target *target = session->targets[i];
		struct pollfd poll_fd = {.fd = target->pidfd, .events = POLLIN};

		if (target->pidfd < 0 || poll(&poll_fd, 1, 0) <= 0)
			continue;
		/* Its last records are in the ring buffer by now. */
		while (stream_drain(perfmap_attach_stream(session->attach), DRAIN_BATCH) >=
		       (int)DRAIN_BATCH)
			;
		target->process->exited = 1;
		target_finish(session, target);
		close(target->pidfd);
		target->pidfd = -1;
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
		struct perfmap_target *target = session->targets[i];
		uint64_t pause = target->scan_cost_ns * SCAN_SHARE,
			 period = scan_period_ns(now - target->opened_ns);

		if (now - target->scanned_ns < (pause < period ? period : pause))
			continue;
		target->scanned_ns = now;
		perfmap_target_find_files(target, session->inotify, 1);
		/* A program that ends frees its code first: names are kept for a while. */
		err = perfmap_target_scan(target, session->inotify,
					  now - target->expired_ns >= SCAN_PERIOD_NS
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
		err = perfmap_target_read(session->targets[i], READ_BATCH);
	if (!err && count < (int)DRAIN_BATCH) {
		ends_watch(session);
		err = scan_when_due(session, clock_ns(CLOCK_MONOTONIC));
	}
	return err ?: count;
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
		struct perfmap_target *target = session->targets[i];

		perfmap_target_find_files(target, session->inotify, 1);
		err = perfmap_target_read(target, UINT64_MAX)
				?: perfmap_target_scan(target, session->inotify,
					PERFMAP_EXPIRE_ALL)
				?: perfmap_target_read(target, UINT64_MAX);
	}
	return err;
}

int perfmap_session_install(struct perfmap_session *session, struct perfmap_target *target)
{
	/* There are no entries: do not replace a map file that it may have. */
	if (!perfmap_table_count(target->process->table) && target->places.version == UINT64_MAX)
		return 0;
	if (target->process->evicted) /* its table was freed; the installed map is complete */
		return 0;
	return perfmap_target_install(target, session->inotify);
}

size_t perfmap_session_running(const struct perfmap_session *session)
{
	size_t running = 0;

	for (size_t i = 0; i < session->count; i++)
		running += session->targets[i]->named && session->targets[i]->pidfd >= 0;
	return running;
}

size_t perfmap_session_count(const struct perfmap_session *session)
{
	return session->count;
}

struct perfmap_target *perfmap_session_at(const struct perfmap_session *session, size_t index)
{
	return session->targets[index];
}

size_t perfmap_session_poll_fds(const struct perfmap_session *session, int *fds, size_t capacity)
{
	size_t count = 0;

	if (session->inotify >= 0 && count < capacity)
		fds[count++] = session->inotify;
	for (size_t i = 0; i < session->count && count < capacity; i++)
		if (session->targets[i]->pidfd >= 0)
			fds[count++] = session->targets[i]->pidfd;
	return count;
}

int perfmap_session_loss(const struct perfmap_session *session, __u64 counts[LOSS_COUNT])
{
	return stream_loss(perfmap_attach_stream(session->attach), counts);
}
