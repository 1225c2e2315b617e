/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "probe/attach.h"
#include "probe/census.h"
#include "probe/features.h"
#include "probe/plan_process.h"
#include "probe/seccomp.h"
#include "python/code.h"
#include "python/heap.h"
#include "python/version.h"
#include "trace/capture.h"

/* Records handed over in one go; between two goes the session looks at the clock and at who has ended. */
#define DRAIN_BATCH (1u << 16)
/* Heap readings that nobody asked for take at most this share of the time. */
#define CENSUS_SHARE    50
#define CENSUS_PAUSE_NS 500000000ull /* between two of them at least */
/* How often the loss counters are looked at: a capture that is cut off has a late reading, too. */
#define LOSS_PERIOD_NS 500000000ull

struct member {
	pid_t pid;
	int pidfd;    /* -1 once the process has ended */
	size_t index; /* in the trace */
	struct python_runtime runtime;
	enum event_mode mode;
	int mapped, large_blocks;           /* growth mode: mapped memory; large blocks one by one */
	int heap_unreadable;                /* there will be no census */
	uint64_t census_ns, census_cost_ns; /* when the last one ended, and what it took */
};

struct session {
	struct session_opts opts;
	struct features features;
	struct attach *attach;
	struct plan_cache *plans;
	struct trace *trace;
	struct member **members;
	size_t count;
	uint32_t next_space;
	int capture_error;
	struct seccomp_answer seccomp;
	uint64_t loss_ns; /* when the loss counters were last read */
};

/* Every record, whether BPF made it or the session, goes the same way: into the capture, then the trace. */
static int session_feed(struct session *session, const void *record, size_t size)
{
	int err;

	if (session->opts.capture && !session->capture_error)
		session->capture_error = capture_record(session->opts.capture, record, size);
	err = trace_feed(session->trace, record, size);
	return err == -ENOMEM ? err : 0; /* a malformed record is counted there */
}

/* The ring buffer's room for a record is constant where the verifier wants it so: the record proper may be shorter. */
static int record_handle(void *context, void *record, size_t size)
{
	const struct event_header *header = record;

	return session_feed(context, record, header->size < size ? header->size : size);
}

static struct member *member_find(struct session *session, uint32_t tgid)
{
	for (size_t i = session->count; i-- > 0;)
		if ((uint32_t)session->members[i]->pid == tgid)
			return session->members[i];
	return NULL;
}

/* What BPF could not copy (a page that was not resident, a long table) is read from here, if it is still there. */
static void code_missing(void *context, uint32_t tgid, uint64_t code_id, uint64_t address, uint32_t missing)
{
	struct session *session = context;
	struct member *member = member_find(session, tgid);
	struct event_header header = {.time_ns = clock_ns(CLOCK_MONOTONIC), .tgid = tgid};
	struct buffer records = {0};
	int err;

	if (!member || member->pidfd < 0)
		return;
	err = code_read(member->pid, &member->runtime.target, address, code_id, &header, &records);
	if (err)
		log_debug("code object at 0x%llx, parts 0x%x: %s", (unsigned long long)address, missing,
			  error_reason(err));
	for (size_t offset = 0; !err && offset + sizeof(header) <= records.size;) {
		struct event_header *record = (void *)(records.data + offset);

		session_feed(session, record, record->size);
		offset += record->size;
	}
	buffer_free(&records);
}

int session_new(struct session **out, const struct session_opts *opts, const char **remedy)
{
	struct session *session = calloc(1, sizeof(*session));
	struct trace_hooks hooks = {.code_missing = code_missing, .context = session};
	struct attach_opts attach = {
		.ring_bytes = opts->ring_bytes,
		.no_session = opts->backend == SESSION_BACKEND_MULTI,
		.no_multi = opts->backend == SESSION_BACKEND_PERF,
		.record = record_handle,
		.context = session,
	};
	int err;

	*remedy = NULL;
	if (!session)
		return -ENOMEM;
	session->opts = *opts;
	session->next_space = 1;
	err = features_probe(&session->features);
	if (!err)
		err = features_check(&session->features, remedy);
	if (!err)
		err = trace_new(&session->trace, &hooks);
	if (!err)
		err = plan_cache_new(&session->plans);
	if (!err)
		err = attach_new(&session->attach, &session->features, &attach);
	if (!err && opts->capture)
		err = capture_begin(opts->capture);
	if (err) {
		session_free(session);
		return err;
	}
	*out = session;
	return 0;
}

static void member_close(struct member *member)
{
	if (member->pidfd >= 0)
		close(member->pidfd);
	python_runtime_close(&member->runtime);
	free(member);
}

void session_free(struct session *session)
{
	if (!session)
		return;
	attach_free(session->attach);
	for (size_t i = 0; i < session->count; i++)
		member_close(session->members[i]);
	free(session->members);
	plan_cache_free(session->plans);
	trace_free(session->trace);
	free(session);
}

static int process_announce(struct session *session, const struct member *member, const char *name,
			    int from_start)
{
	struct event_target record = {
		.header = {.type = EVENT_PROCESS,
			   .size = sizeof(record),
			   .time_ns = clock_ns(CLOCK_MONOTONIC),
			   .tgid = member->pid,
			   .tid = member->pid},
		.python_version = member->runtime.version_hex,
		.nframe = session->opts.nframe,
		.realtime_ns = clock_ns(CLOCK_REALTIME),
		.from_start = from_start,
		.mode = member->mode,
	};

	if (member->mode == EVENT_MODE_GROWTH)
		record.mode |= (member->mapped ? EVENT_MODE_MAPPED : 0) |
			       (member->large_blocks ? EVENT_MODE_LARGE : 0);

	memcpy(record.name, name, strnlen(name, sizeof(record.name) - 1));
	return session_feed(session, &record, sizeof(record));
}

static void attached_print(const struct session *session, const struct member *member, const char *name,
			   const struct plan *plan, uint64_t elapsed_ns)
{
	char version[VERSION_TEXT];
	size_t count = 0, emulated = 0;

	for (const struct plan *part = plan; part; part = part->memory) {
		count += part->count;
		for (size_t i = 0; i < part->count; i++)
			emulated += part->sites[i].emulated;
	}
	log_info("attached to PID %d (%s): CPython %s in %s; %zu probes, %zu of them on instructions that "
		 "the kernel emulates; %s mode, %u frame%s; %llu ms",
		 member->pid, name, version_text(version, member->runtime.version_hex),
		 elf_file_path(member->runtime.file), count, emulated, plan_mode_name(plan->mode),
		 session->opts.nframe, session->opts.nframe == 1 ? "" : "s",
		 (unsigned long long)(elapsed_ns / 1000000));
	if (plan->mode_why[0])
		log_info("not in %s mode: %s", plan_mode_name(session->opts.plan.mode), plan->mode_why);
	log_info("%s; %s", plan->level, attach_backend(session->attach));
	if (plan->memory_why[0])
		log_info("mapped memory is not followed: %s", plan->memory_why);
	for (size_t i = 0; i < plan->missing_count; i++)
		log_debug("not probed: %s: %s", plan->missing[i].symbol, plan->missing[i].why);
}

static int member_new(struct session *session, pid_t pid, struct member **out)
{
	struct member **members = realloc(session->members, (session->count + 1) * sizeof(*members));
	struct member *member;

	if (!members)
		return -ENOMEM;
	session->members = members;
	member = calloc(1, sizeof(*member));
	if (!member)
		return -ENOMEM;
	member->pid = pid;
	/* The descriptor first: it names this process even if the number is given out again. A thread has none. */
	member->pidfd = syscall(SYS_pidfd_open, pid, 0);
	*out = member;
	return 0;
}

static void table_refresh(void *context)
{
	struct session *session = context;

	while (attach_drain(session->attach, DRAIN_BATCH) >= (int)DRAIN_BATCH)
		;
}

static int census_record(void *context, const void *record, size_t size)
{
	return session_feed(context, record, size);
}

/* 0, also for one that has ended; -ENOTSUP its heap cannot be read; -errno. */
static int member_census(struct session *session, struct member *member, int baseline, int freeze)
{
	struct census_opts opts = {.baseline = baseline,
				   .freeze = freeze,
				   .record = census_record,
				   .refresh = table_refresh,
				   .context = session};
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	int err;

	if (member->heap_unreadable || member->pidfd < 0 ||
	    trace_process_at(session->trace, member->index)->end != TRACE_RUNNING)
		return 0;
	err = census_take(&member->runtime, &opts, NULL);
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	member->census_cost_ns = member->census_ns - start;
	return err == -ESRCH ? 0 : err;
}

static void member_reconcile(struct session *session, struct member *member, int baseline, int freeze)
{
	int err = member_census(session, member, baseline, freeze);

	if (err)
		log_info("PID %d: its heap could not be read: %s", member->pid, error_reason(err));
}

void session_census(struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		member_reconcile(session, session->members[i], 0, session->opts.freeze);
}

static int member_attach(struct session *session, struct member *member, const char *name,
			 const struct plan *plan, int from_start)
{
	int err;

	member->runtime.target.nframe = session->opts.nframe;
	member->runtime.target.space = session->next_space++;
	/* One that cannot be described is not read. */
	if (heap_describe(&member->runtime, &member->runtime.target.heap))
		log_debug("PID %d: %s", member->pid, error_reason(-ENOTSUP));
	if (plan->object_code.end) {
		member->runtime.target.object_code_start = plan->object_code.start + member->runtime.bias;
		member->runtime.target.object_code_end = plan->object_code.end + member->runtime.bias;
	}
	if (plan->memory)
		member->runtime.target.program_break = plan->memory->program_break;
	err = process_announce(session, member, name, from_start);
	if (!err)
		err = attach_sites(session->attach, plan, member->runtime.file, member->pid);
	if (!err && plan->memory)
		err = attach_sites(session->attach, plan->memory, plan->memory_file, member->pid);
	if (err)
		return err;
	member->index = trace_process_count(session->trace) - 1;
	/* From here on events come. What is on the heap and none has told of is older. */
	err = attach_target(session->attach, member->pid, &member->runtime.target);
	if (err || from_start)
		return err;
	err = member_census(session, member, 1, 0);
	if (err != -ENOTSUP)
		return err;
	member->heap_unreadable = 1;
	log_info("coverage will not be measured: %s", error_reason(err));
	return 0;
}

int session_add(struct session *session, pid_t pid, int from_start)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	struct process_info info;
	struct plan plan = {0};
	struct member *member = NULL;
	int err;

	err = member_new(session, pid, &member);
	if (err)
		return err;
	err = plan_process(pid, &session->opts.plan, session->plans, &info, &member->runtime, &plan);
	if (!err && member->pidfd < 0)
		err = -ESRCH;
	member->mode = plan.mode;
	member->mapped = plan.memory != NULL;
	member->large_blocks = plan.large_blocks;
	if (!err)
		err = seccomp_check(&session->seccomp, &session->features, pid, &plan);
	if (!err)
		err = member_attach(session, member, info.name, &plan, from_start);
	if (err) {
		plan_free(&plan);
		member_close(member);
		return err;
	}
	session->members[session->count++] = member;
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	attached_print(session, member, info.name, &plan, member->census_ns - start);
	plan_free(&plan);
	return 0;
}

/* The process is gone and its own record of that was lost (or it never ran any of ours): say so in the stream. */
static void member_end(struct session *session, struct member *member)
{
	struct event_process record = {
		.header = {.type = EVENT_EXIT,
			   .size = sizeof(record),
			   .time_ns = clock_ns(CLOCK_MONOTONIC),
			   .tgid = member->pid,
			   .tid = member->pid},
	};

	if (trace_process_at(session->trace, member->index)->end < TRACE_EXITED)
		session_feed(session, &record, sizeof(record));
	close(member->pidfd);
	member->pidfd = -1;
}

/* After half a second, and then as often as the readings' own cost allows. */
static void census_when_due(struct session *session, uint64_t now)
{
	for (size_t i = 0; i < session->count; i++) {
		struct member *member = session->members[i];
		uint64_t pause = member->census_cost_ns * CENSUS_SHARE;

		if (pause < CENSUS_PAUSE_NS)
			pause = CENSUS_PAUSE_NS;
		if (now - member->census_ns >= pause)
			member_census(session, member, 0, 0);
	}
}

static void ends_watch(struct session *session)
{
	for (size_t i = 0; i < session->count; i++) {
		struct member *member = session->members[i];
		struct pollfd poll_fd = {.fd = member->pidfd, .events = POLLIN};

		if (member->pidfd < 0)
			continue;
		if (trace_process_at(session->trace, member->index)->end < TRACE_EXITED &&
		    poll(&poll_fd, 1, 0) <= 0)
			continue;
		/* Whatever it still had to say is in the ring buffer by now. */
		table_refresh(session);
		member_end(session, member);
	}
}

size_t session_running(const struct session *session)
{
	size_t running = 0;

	for (size_t i = 0; i < session->count; i++)
		running += session->members[i]->pidfd >= 0;
	return running;
}

size_t session_poll_fds(const struct session *session, int *fds, size_t room)
{
	size_t count = 0;

	for (size_t i = 0; i < session->count && count < room; i++)
		if (session->members[i]->pidfd >= 0)
			fds[count++] = session->members[i]->pidfd;
	return count;
}

int session_count_loss(struct session *session)
{
	struct event_loss record = {
		.header = {.type = EVENT_LOSS, .size = sizeof(record), .time_ns = clock_ns(CLOCK_MONOTONIC)},
	};
	int err = attach_loss(session->attach, record.counts);

	session->loss_ns = record.header.time_ns;
	return err ? err : session_feed(session, &record, sizeof(record));
}

static struct member *member_at(const struct session *session, size_t process)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->members[i]->index == process && session->members[i]->pidfd >= 0)
			return session->members[i];
	return NULL;
}

int session_process_running(const struct session *session, size_t process)
{
	return member_at(session, process) != NULL;
}

int session_refresh(struct session *session, size_t process, int reconcile)
{
	struct member *member = member_at(session, process);

	/* In exact mode the table is what it is without. */
	if (reconcile && member && member->mode != EVENT_MODE_EXACT)
		member_reconcile(session, member, 0, session->opts.freeze);
	table_refresh(session);
	return session_count_loss(session);
}

int session_mark(struct session *session, size_t process, uint32_t type)
{
	struct member *member = member_at(session, process);
	struct event_mark record = {
		.header = {.type = type, .size = sizeof(record), .time_ns = clock_ns(CLOCK_MONOTONIC)}};
	int err;

	if (!member)
		return -ESRCH;
	record.header.tgid = record.header.tid = member->pid;
	err = session_feed(session, &record, sizeof(record));
	if (!err && type == EVENT_CLEAR)
		member_reconcile(session, member, 1, 0);
	return err;
}

int session_drain(struct session *session)
{
	int count = attach_drain(session->attach, DRAIN_BATCH);

	if (count < 0)
		return count;
	if (session->capture_error)
		return session->capture_error;
	if (count < (int)DRAIN_BATCH) {
		ends_watch(session);
		census_when_due(session, clock_ns(CLOCK_MONOTONIC));
	}
	if (clock_ns(CLOCK_MONOTONIC) - session->loss_ns >= LOSS_PERIOD_NS) {
		int err = session_count_loss(session);

		if (err)
			return err;
	}
	return count;
}

int session_stop(struct session *session)
{
	/* What the events after the last reading tell of may be dead again: none after it. */
	session_census(session);
	for (size_t i = 0; i < session->count; i++)
		attach_forget(session->attach, session->members[i]->pid);
	/* The result need not wait for that: from here on the probes do nothing. */
	if (!attach_detaches_slowly(session->attach))
		attach_detach(session->attach);
	else
		log_info("this kernel takes probes out one by one; the report does not wait for it");
	table_refresh(session);
	return session_count_loss(session);
}

int session_capture_error(const struct session *session)
{
	return session->capture_error;
}

struct trace *session_trace(struct session *session)
{
	return session->trace;
}
