/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a member. The list owns every member from member_new() on. Members are never freed
 * while records are drained, since callers of session_pull() may hold pointers to them.
 *
 *   member_new()      it is in the list; records do not find it yet
 *   member_begin()    its first record is in the stream; member_find() finds it
 *   member_end(), EVENT_EXIT, EVENT_EXEC, EVENT_DISCARD: ended; its pid may be reused
 *   members_bury()    its probes are out and its memory is freed
 *
 * member_abandon() is for an attachment that fails at any of these points.
 */
#include "member/member.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "member/state.h"
#include "member/symbols.h"
#include "process_plan/plan_target.h"

#define ENDS_BATCH 64

int members_begin(struct session *session)
{
	session->ends = epoll_create1(EPOLL_CLOEXEC);
	return session->ends < 0 ? -errno : 0;
}

size_t members_running(const struct session *session)
{
	size_t running = 0;

	for (size_t i = 0; i < session->count; i++)
		running += !session->members[i]->ended;
	return running;
}

struct member *member_find(struct session *session, uint32_t tgid)
{
	for (size_t i = session->count; i-- > 0;)
		if ((uint32_t)session->members[i]->pid == tgid && session->members[i]->begun &&
		    !session->members[i]->ended)
			return session->members[i];
	return NULL;
}

int member_new(struct session *session, pid_t pid, struct member **out)
{
	int err = array_reserve(&session->members, &session->member_capacity, session->count, 1,
				sizeof(*session->members));
	struct epoll_event event = {.events = EPOLLIN};
	struct member *member = err ? NULL : calloc(1, sizeof(*member));

	if (!member)
		return -ENOMEM;
	member->pid = pid;
	session->members[session->count++] = member;
	/* The pidfd first: it keeps naming this process if its pid is reused. A thread has none. */
	member->pidfd = syscall(SYS_pidfd_open, pid, 0);
	event.data.ptr = member;
	if (member->pidfd >= 0 && epoll_ctl(session->ends, EPOLL_CTL_ADD, member->pidfd, &event)) {
		err = -errno;
		member_abandon(session, member);
		return error_set(err, "its end cannot be watched");
	}
	*out = member;
	return 0;
}

int member_begin(struct session *session, struct member *member, const struct event_target *record)
{
	int err = session_feed(session, record, sizeof(*record));

	if (!err)
		err = trace_process_find(session->trace, record->header.tgid, &member->index);
	if (err)
		return err;
	member->announced = *record;
	member->begun = 1;
	return 0;
}

uint32_t member_mode_flags(const struct member *member)
{
	const struct python_offsets *offsets = member->runtime.offsets;

	return (member->layers & 1u << EVENT_LAYER_PYTHON ? EVENT_MODE_PYTHON : 0) |
	       (member->layers & 1u << EVENT_LAYER_NATIVE ? EVENT_MODE_NATIVE : 0) |
	       (member->layers & 1u << EVENT_LAYER_MMAP ? EVENT_MODE_MAPPED : 0) |
	       (member->large_blocks ? EVENT_MODE_LARGE : 0) |
	       (member->large_windowed ? EVENT_MODE_LARGE_WINDOWS : 0) |
	       (member->reuse_unseen ? EVENT_MODE_NO_REUSE : 0) |
	       (member->ends_unseen ? EVENT_MODE_NO_ENDS : 0) |
	       (offsets && offsets->free_threaded.heap_bytes ? EVENT_MODE_MIMALLOC : 0);
}

int member_announce(struct session *session, struct member *member, const char *name, pid_t ns_pid,
		    int from_start, uint64_t time_ns)
{
	struct event_target record = {
		.header = {.type = EVENT_PROCESS,
			   .size = sizeof(record),
			   .time_ns = time_ns,
			   .tgid = member->pid,
			   .tid = member->pid},
		.python_version = member->runtime.version_hex,
		.nframe = session_nframe(&session->opts, member->layers),
		.realtime_ns = clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_MONOTONIC) - time_ns),
		.from_start = from_start,
		.mode = member->mode | member_mode_flags(member) |
			(session->opts.tasks ? EVENT_MODE_TASKS : 0) |
			(member->tasks_untold ? EVENT_MODE_TASKS_UNTOLD : 0),
		.sample_bytes = session->opts.sample_bytes,
		.age_ns = process_age_ns(member->pid),
		.budget_permille = (uint32_t)(session->opts.overhead * 1000 + 0.5),
		.ns_pid = ns_pid,
	};

	memcpy(record.name, name, strnlen(name, sizeof(record.name) - 1));
	container_names_find(&session->container_names, member->pid, record.container,
			     sizeof(record.container));
	return member_begin(session, member, &record);
}

void member_planned(struct member *member, const struct plan_target *target)
{
	const struct plan *plan = &target->python;

	member->mode = plan->mode;
	member->layers = target->layers;
	member->large_blocks = plan->large_blocks;
	member->large_windowed = 0;
	member->pools_off = 0;
	member->reuse_unseen = plan->reuse_unseen;
	member->ends_unseen = plan->ends_unseen;
	member->runtime.target.layers = target->layers;
	member->runtime.target.partial = !plan->complete;
	if (plan->memory)
		member->runtime.target.program_break = plan->memory->program_break;
}

struct plan_target_opts member_plan_opts(const struct session *session, const struct member *member)
{
	struct plan_target_opts opts = session->opts.plan;

	if (member->layers == 1u << EVENT_LAYER_MMAP)
		opts.layers = member->layers;
	return opts;
}

/* For a process whose own record of its end was lost, or was never made. */
void member_end(struct session *session, struct member *member, uint32_t type)
{
	struct event_process record = {
		.header = {.type = type,
			   .size = sizeof(record),
			   .tgid = member->pid,
			   .tid = member->pid},
	};

	member_symbols_name(session, member);
	record.header.time_ns = clock_ns(CLOCK_MONOTONIC);
	session_feed(session, &record, sizeof(record));
	member->ended = 1;
}

void member_forget(struct session *session, const struct member *member)
{
	attach_forget(session->attach, (uint32_t)member->pid, member->runtime.target.space_id);
}

void discard_feed(struct session *session, uint32_t pid)
{
	struct event_mark record = {
		.header = {.type = EVENT_DISCARD,
			   .size = sizeof(record),
			   .time_ns = clock_ns(CLOCK_MONOTONIC),
			   .tgid = pid,
			   .tid = pid},
	};

	session_feed(session, &record, sizeof(record));
}

void member_discard(struct session *session, struct member *member)
{
	member_forget(session, member);
	discard_feed(session, (uint32_t)member->pid);
	member->ended = 1;
}

static void member_free(struct session *session, struct member *member)
{
	uint64_t swapped = space_missed(member->runtime.space).swapped;

	if (member->pidfd >= 0) {
		/*
		 * A process that writes a snapshot may have inherited the descriptor, and closing
		 * it here would not remove it from the epoll set.
		 */
		epoll_ctl(session->ends, EPOLL_CTL_DEL, member->pidfd, NULL);
		close(member->pidfd);
	}
	session->inherited -= member->inherited;
	session->bytes_swapped += swapped;
	session->processes_swapped += swapped > 0;
	member_symbols_end(member);
	member_windows_free(member);
	python_runtime_close(&member->runtime);
	free(member);
}

/*
 * Removes its private probes, once: later probes in a process with its pid are another member's.
 * wait: the process goes on, with another program that is about to have probes at the same places.
 * While both are there, each hit is reported twice, and requests lose their returns.
 */
static void member_release(struct session *session, struct member *member, int wait)
{
	if (!member->released)
		attach_drop(session->attach, member->pid, ATTACH_ALL, wait);
	member->released = 1;
}

void members_release(struct session *session, pid_t pid)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->members[i]->pid == pid && session->members[i]->ended)
			member_release(session, session->members[i], 1);
}

void member_abandon(struct session *session, struct member *member)
{
	size_t at = session->count;

	if (member->begun) {
		/* A drain may have ended it, and begun another member with its pid. */
		if (!member->ended)
			member_discard(session, member);
		return; /* members_bury() frees it */
	}
	while (at && session->members[at - 1] != member)
		at--;
	memmove(&session->members[at - 1], &session->members[at],
		(session->count - at) * sizeof(*session->members));
	session->count--;
	member_release(session, member, 1);
	member_free(session, member);
}

/* Marks at most ENDS_BATCH processes that have ended; the next call reports the others. */
static void ends_mark(struct session *session)
{
	struct epoll_event events[ENDS_BATCH];
	int count = epoll_wait(session->ends, events, ENDS_BATCH, 0);

	for (int i = 0; i < count; i++)
		((struct member *)events[i].data.ptr)->gone = 1;
}

void members_bury(struct session *session)
{
	size_t kept = 0;

	ends_mark(session);
	for (size_t i = 0; i < session->count; i++) {
		struct member *member = session->members[i];

		if (member->ended || (member->pidfd >= 0 && !member->gone))
			continue;
		/* Its last records are in the ring buffer by now. Draining may append members. */
		session_pull(session);
		if (!member->ended)
			member_end(session, member, EVENT_EXIT);
	}
	/* Nothing is drained from here on: members can be freed. */
	for (size_t i = 0; i < session->count; i++) {
		struct member *member = session->members[i];

		if (!member->ended) {
			session->members[kept++] = member;
			continue;
		}
		member_release(session, member, 0);
		member_free(session, member);
	}
	session->count = kept;
}

void members_free(struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		member_free(session, session->members[i]);
	free(session->members);
	if (session->bytes_swapped)
		log_info("not read, since it is swapped out: %llu KiB of %zu processes (blocks "
			 "there, or their types, are not known)",
			 (unsigned long long)session->bytes_swapped >> 10,
			 session->processes_swapped);
	if (session->ends >= 0)
		close(session->ends);
}
