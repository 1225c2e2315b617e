/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members of a session, from their first moment to their last. The list owns every member from
 * member_new() on: nobody else frees one, and none is freed while records are drained, where
 * whoever drains may hold some.
 *
 *   member_new()      it is in the list; nothing is known of it, and no record finds it
 *   member_begin()    its first record is in the stream; member_find() finds it
 *   member_end(), EVENT_EXIT, EVENT_EXEC, EVENT_DISCARD: ended; its process id may be another's
 *   members_bury()    its probes are out and its memory is free
 *
 * member_abandon() is for an attachment that fails anywhere on this way.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "session/session_state.h"

#define ENDS_BATCH 64

int members_begin(struct session *session)
{
	session->ends = epoll_create1(EPOLL_CLOEXEC);
	return session->ends < 0 ? -errno : 0;
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
	int err = array_reserve(&session->members, &session->member_room, session->count, 1,
				sizeof(*session->members));
	struct epoll_event event = {.events = EPOLLIN};
	struct member *member = err ? NULL : calloc(1, sizeof(*member));

	if (!member)
		return -ENOMEM;
	member->pid = pid;
	session->members[session->count++] = member;
	/*
	 * The descriptor first: it names this process even if the number is given out again. A
	 * thread has none.
	 */
	member->pidfd = syscall(SYS_pidfd_open, pid, 0);
	event.data.ptr = member;
	if (member->pidfd >= 0 && epoll_ctl(session->ends, EPOLL_CTL_ADD, member->pidfd, &event)) {
		err = -errno;
		member_abandon(session, member);
		return error_set(err, "the kernel does not tell of its end");
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

/*
 * The process is gone and its own record of that was lost (or it never ran any of ours): say so in
 * the stream.
 */
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
	attach_forget(session->attach, (uint32_t)member->pid, member->runtime.target.space);
}

static void member_free(struct session *session, struct member *member)
{
	if (member->pidfd >= 0) {
		/*
		 * A writer of a snapshot may hold the descriptor for a moment longer, and with it
		 * its place in the set.
		 */
		epoll_ctl(session->ends, EPOLL_CTL_DEL, member->pidfd, NULL);
		close(member->pidfd);
	}
	session->adopted -= member->adopted;
	member_symbols_end(member);
	python_runtime_close(&member->runtime);
	free(member);
}

/*
 * The probes that were placed for it alone, once: what lies in its process later is another
 * member's.
 */
static void member_release(struct session *session, struct member *member)
{
	if (!member->released)
		attach_release(session->attach, member->pid);
	member->released = 1;
}

void members_release(struct session *session, pid_t pid)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->members[i]->pid == pid && session->members[i]->ended)
			member_release(session, session->members[i]);
}

void member_abandon(struct session *session, struct member *member)
{
	size_t at = session->count;

	if (member->begun) {
		/*
		 * What was drained meanwhile may have told of its end, and of another's beginning
		 * with its number.
		 */
		if (!member->ended) {
			member_forget(session, member);
			member_end(session, member, EVENT_EXIT);
		}
		return; /* members_bury() does the rest */
	}
	while (at && session->members[at - 1] != member)
		at--;
	memmove(&session->members[at - 1], &session->members[at],
		(session->count - at) * sizeof(*session->members));
	session->count--;
	member_release(session, member);
	member_free(session, member);
}

/* Who has ended, of however many: what is left over is told of at the next look. */
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
		/*
		 * Whatever it still had to say is in the ring buffer by now. Draining may bring new
		 * ones, at the end.
		 */
		session_pull(session);
		if (!member->ended)
			member_end(session, member, EVENT_EXIT);
	}
	/* Nothing is drained from here on. */
	for (size_t i = 0; i < session->count; i++) {
		struct member *member = session->members[i];

		if (!member->ended) {
			session->members[kept++] = member;
			continue;
		}
		member_release(session, member);
		member_free(session, member);
	}
	session->count = kept;
}

void members_free(struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		member_free(session, session->members[i]);
	free(session->members);
	if (session->ends >= 0)
		close(session->ends);
}
