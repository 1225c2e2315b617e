/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for the addresses of native frames: records in the stream, so that a capture needs no files
 * of the target. What is mapped is looked at as soon as a stack has an address outside of all that
 * was, since a library may be gone when it is asked about. It is asked about ahead of time, between
 * two drains, where nothing waits for the answer; before a report all must have names, and what is
 * not known by then is waited for within limits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "session/session_state.h"
#include "symbols/symbols.h"

/*
 * Code comes and goes in memory of no file: looking at what is mapped is worth the while no more
 * often than this.
 */
#define LOOK_PERIOD_NS 100000000ull

/* CPU time, for the names of one process; 100,000 places in CPython take 2 s. */
#define MEMBER_SHARE_NS 10000000000ull

#define PREPARE_NS 5000000ull  /* between two drains */
#define SLICE_NS   50000000ull /* of a wait, between two looks for a signal */
/*
 * A wait is so much CPU time of the process that reads for us, so that names do not depend on what
 * else the machine does, and at most WALL_TIMES as long.
 */
#define WALL_TIMES 10u
#define HURRY_NS   500000000ull /* for all names, after somebody has asked for the end */
/* for all names, where nothing is drained any more, or nobody else traced */
#define END_NS        5000000000ull
#define NAMES_SHARE   10u           /* percent of the time in which others are traced, */
#define NAMES_LEFT_NS 1000000000ull /* which is kept up to so much */

static int is_native(const struct member *member)
{
	return (member->layers & ~(1u << EVENT_LAYER_PYTHON)) != 0;
}

/*
 * Looks at what is mapped now. What was before is kept: of memory unmapped since, stacks may still
 * tell.
 */
int member_symbols_look(struct session *session, struct member *member)
{
	struct member_symbols *names = &member->symbols;
	int err;

	if (!session->symbols) {
		err = symbols_new_in(&session->symbols, trace_account(session->trace));
		if (err)
			return err;
	}
	if (names->count == MEMBER_MODULES) {
		modules_free(names->modules[0]);
		memmove(names->modules, names->modules + 1,
			(--names->count) * sizeof(names->modules[0]));
	}
	names->looked_ns = clock_ns(CLOCK_MONOTONIC);
	err = modules_new(&names->modules[names->count], session->symbols, member->pid);
	names->count += !err;
	return err;
}

int member_symbols_begin(struct session *session, struct member *member)
{
	int err = is_native(member) && !member->symbols.count ? member_symbols_look(session, member)
							      : 0;

	/* One that has ended already has its parent's names, if its addresses were named there. */
	if (err && err != -ESRCH)
		log_info("PID %d: native frames will have no names: %s", member->pid,
			 error_reason(err));
	return err == -ENOMEM ? err : 0;
}

void member_symbols_end(struct member *member)
{
	while (member->symbols.count)
		modules_free(member->symbols.modules[--member->symbols.count]);
	modules_free(member->symbols.told);
	symbols_share_free(member->symbols.share);
}

static int is_mapped(const struct member_symbols *names, uint64_t address)
{
	for (size_t i = names->count; i-- > 0;)
		if (modules_find(names->modules[i], address - 1))
			return 1;
	return names->told && modules_find(names->told, address - 1);
}

void member_symbols_watch(struct session *session, struct member *member, uint64_t now)
{
	struct member_symbols *names = &member->symbols;
	uint64_t address;
	int missing = 0;

	if (!is_native(member) || member->ended || member->pidfd < 0 ||
	    now - names->looked_ns < LOOK_PERIOD_NS)
		return;
	while (trace_unnamed_next(session->trace, member->index, &names->watched, &address))
		missing |= !is_mapped(names, address);
	if (missing)
		member_symbols_look(session, member);
}

/* Appends a text of at most EVENT_MAX_TEXT bytes; how many there are. */
static int text_append(struct buffer *record, const char *text, uint16_t *bytes)
{
	size_t size = strnlen(text, EVENT_MAX_TEXT);

	*bytes = (uint16_t)size;
	return buffer_append(record, text, size);
}

static int frame_append(struct buffer *record, const struct symbols_frame *frame)
{
	static const char zeros[8];
	struct event_symbol_frame head = {.line = frame->line};
	size_t at = record->size;
	int err = buffer_append(record, &head, sizeof(head));

	if (!err)
		err = text_append(record, frame->function, &head.function_bytes);
	if (!err)
		err = text_append(record, frame->filename, &head.filename_bytes);
	if (!err)
		err = buffer_append(record, zeros, -record->size & 7);
	if (!err)
		memcpy(record->data + at, &head, sizeof(head));
	return err;
}

static int symbol_feed(struct session *session, struct member *member, uint64_t address,
		       const struct symbols_frame *frames, uint32_t count, int slow)
{
	struct event_symbol head = {
		.header = {.type = EVENT_SYMBOL,
			   .time_ns = trace_process_at(session->trace, member->index)->end_ns,
			   .tgid = member->pid,
			   .tid = member->pid},
		.address = address,
		.count = count,
		.flags = slow ? EVENT_SYMBOL_SLOW : 0,
	};
	struct buffer record = {0};
	int err = buffer_append(&record, &head, sizeof(head));

	for (uint32_t i = 0; i < count && !err; i++)
		err = frame_append(&record, &frames[i]);
	if (!err) {
		((struct event_header *)record.data)->size = (uint32_t)record.size;
		err = session_feed(session, record.data, record.size);
	}
	buffer_free(&record);
	return err;
}

/*
 * Modules to be asked in turn: the newest of what was mapped knows best what is at an address now.
 * NULL behind the last.
 */
static const struct modules *modules_next(const struct member_symbols *names, size_t *turn)
{
	size_t at = (*turn)++;

	if (names->told && !at--)
		return names->told;
	return at < names->count ? names->modules[names->count - 1 - at] : NULL;
}

/* A wait for names, which others may have to pay for. */
struct naming {
	struct names_end end;
	uint64_t began_ns;
	int shared, hurried;
};

static struct names_end names_end_in(const struct session *session, uint64_t ns)
{
	uint64_t worker_ns = session->symbols ? symbols_worker_ns(session->symbols) : 0;

	return (struct names_end){worker_ns + ns, clock_ns(CLOCK_MONOTONIC) + WALL_TIMES * ns};
}

static int names_end_is_past(const struct session *session, const struct names_end *end)
{
	return clock_ns(CLOCK_MONOTONIC) >= end->wall_ns ||
	       symbols_worker_ns(session->symbols) >= end->worker_ns;
}

static struct naming naming_begin(struct session *session)
{
	struct names_time *time = &session->names_time;
	struct naming naming = {.began_ns = clock_ns(CLOCK_MONOTONIC)};
	uint64_t passed_ns = naming.began_ns - time->filled_ns;

	time->filled_ns = naming.began_ns;
	time->left_ns +=
		passed_ns < NAMES_LEFT_NS * 100 ? passed_ns * NAMES_SHARE / 100 : NAMES_LEFT_NS;
	if (time->left_ns > NAMES_LEFT_NS)
		time->left_ns = NAMES_LEFT_NS;
	naming.shared = !time->ends && session_running(session) > 1;
	if (time->ends)
		naming.end = time->end;
	else /* Of what is shared the next one is to have some, too. */
		naming.end = names_end_in(session, naming.shared ? time->left_ns / 2 : END_NS);
	return naming;
}

static void naming_end(struct session *session, const struct naming *naming)
{
	struct names_time *time = &session->names_time;
	uint64_t waited_ns = clock_ns(CLOCK_MONOTONIC) - naming->began_ns;

	if (naming->shared)
		time->left_ns -= waited_ns < time->left_ns ? waited_ns : time->left_ns;
}

/*
 * The end is asked for: it comes soon. What a Ctrl-C has ended, too, still has some time for its
 * names; who asks again while the session ends has waited enough.
 */
static void naming_hurry(const struct session *session, struct naming *naming)
{
	struct names_end soon = names_end_in(session, session->names_time.ends ? 0 : HURRY_NS);

	if (naming->hurried || !interrupt_pending())
		return;
	naming->hurried = 1;
	if (naming->end.wall_ns > soon.wall_ns)
		naming->end.wall_ns = soon.wall_ns;
	if (naming->end.worker_ns > soon.worker_ns)
		naming->end.worker_ns = soon.worker_ns;
}

/* 0; -ENOMEM */
static int share_need(struct member_symbols *names)
{
	return names->share ? 0 : symbols_share_new(&names->share, MEMBER_SHARE_NS);
}

/* The frames, as soon as they are known. Their number; 0; -EAGAIN, -ETIME, -ENOMEM. */
static int address_wait(struct session *session, const struct member_symbols *names,
			uint64_t address, struct naming *naming, struct symbols_frame *frames)
{
	const struct modules *modules;
	int count;

	for (;;) {
		int last = names_end_is_past(session, &naming->end);
		struct symbols_ask ask = {.until_ns =
						  last ? 0 : clock_ns(CLOCK_MONOTONIC) + SLICE_NS,
					  .share = names->share};
		size_t turn = 0;

		count = 0;
		while (!count && (modules = modules_next(names, &turn)))
			count = symbols_resolve(session->symbols, modules, address, &ask, frames,
						SYMBOLS_FRAMES_MAX);
		if (count != -EAGAIN || last)
			return count;
		naming_hurry(session, naming);
	}
}

static int address_plain(struct session *session, const struct member_symbols *names,
			 uint64_t address, struct symbols_frame *frame)
{
	const struct modules *modules;
	size_t turn = 0;
	int count = 0;

	while (!count && (modules = modules_next(names, &turn)))
		count = symbols_resolve_plain(session->symbols, modules, address, frame);
	return count;
}

static int address_name(struct session *session, struct member *member, uint64_t address,
			struct naming *naming)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	int count = address_wait(session, &member->symbols, address, naming, frames);
	int slow = count == -EAGAIN || count == -ETIME;

	member->symbols.late |= count == -EAGAIN;

	if (slow)
		count = address_plain(session, &member->symbols, address, frames);
	/* Without room for its name it stays an address, and is not asked about again. */
	if (account_is_full(count))
		count = 0;
	return count < 0 ? count
			 : symbol_feed(session, member, address, frames, (uint32_t)count, slow);
}

int member_symbols_name(struct session *session, struct member *member)
{
	struct member_symbols *names = &member->symbols;
	struct naming naming;
	uint64_t address;
	int err;

	/* Of one that has ended the trace may have given its index to another. */
	if ((!names->count && !names->told) || member->ended)
		return 0;
	member_symbols_watch(session, member, clock_ns(CLOCK_MONOTONIC));
	err = share_need(names);
	if (err)
		return err;
	if (names->late) {
		names->late = 0;
		names->named = 0;
	}
	naming = naming_begin(session);
	while (!err && trace_unnamed_next(session->trace, member->index, &names->named, &address))
		err = address_name(session, member, address, &naming);
	naming_end(session, &naming);
	return err;
}

void session_name(struct session *session)
{
	for (size_t i = 0; i < session->count; i++) {
		int err = member_symbols_name(session, session->members[i]);

		if (err)
			log_info("PID %d: some native frames have no names: %s",
				 session->members[i]->pid, error_reason(err));
	}
}

/* What is new of one member. 0; -EAGAIN: the worker has enough to do, and the rest is for later. */
static int member_prepare(struct session *session, struct member *member, uint64_t until_ns)
{
	struct member_symbols *names = &member->symbols;
	struct symbols_ask ask = {.until_ns = until_ns};
	const struct modules *modules;
	uint64_t address;

	if (member->ended || (!names->count && !names->told) || share_need(names))
		return 0;
	ask.share = names->share;
	for (size_t next = names->prepared;
	     trace_unnamed_next(session->trace, member->index, &next, &address);
	     names->prepared = next) {
		size_t turn = 0;

		while ((modules = modules_next(names, &turn)))
			if (modules_find(modules, address - 1))
				break;
		if (modules && symbols_prepare(session->symbols, modules, address, &ask) == -EAGAIN)
			return -EAGAIN;
	}
	return 0;
}

void session_names_prepare(struct session *session)
{
	uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + PREPARE_NS;
	struct names_time *time = &session->names_time;

	/*
	 * Each begins where the last one has ended: who has many names, or slow ones, does not keep
	 * the others waiting.
	 */
	for (size_t i = 0; session->symbols && i < session->count; i++)
		if (member_prepare(session, session->members[time->turn++ % session->count],
				   until_ns))
			break;
}

void session_names_end(struct session *session, int hurried)
{
	session->names_time.ends = 1;
	session->names_time.end = names_end_in(session, hurried ? HURRY_NS : END_NS);
}
