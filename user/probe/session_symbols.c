/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for the addresses of native frames: records in the stream, so that a capture needs no files of the target. What is
 * mapped is looked at as soon as a stack has an address outside of all that was, since a library may be gone when it is
 * asked about; it is asked about before a report.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "probe/session_state.h"
#include "symbols/symbols.h"

/* Code comes and goes in memory of no file: looking at what is mapped is worth the while no more often than this. */
#define LOOK_PERIOD_NS 100000000ull

static int is_native(const struct member *member)
{
	return (member->layers & ~(1u << EVENT_LAYER_PYTHON)) != 0;
}

/* Looks at what is mapped now. What was before is kept: of memory unmapped since, stacks may still tell. */
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
		memmove(names->modules, names->modules + 1, (--names->count) * sizeof(names->modules[0]));
	}
	names->looked_ns = clock_ns(CLOCK_MONOTONIC);
	err = modules_new(&names->modules[names->count], session->symbols, member->pid);
	names->count += !err;
	return err;
}

int member_symbols_begin(struct session *session, struct member *member)
{
	int err = is_native(member) && !member->symbols.count ? member_symbols_look(session, member) : 0;

	/* One that has ended already has its parent's names, if its addresses were named there. */
	if (err && err != -ESRCH)
		log_info("PID %d: native frames will have no names: %s", member->pid, error_reason(err));
	return err == -ENOMEM ? err : 0;
}

void member_symbols_end(struct member *member)
{
	while (member->symbols.count)
		modules_free(member->symbols.modules[--member->symbols.count]);
	modules_free(member->symbols.told);
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
		       const struct symbols_frame *frames, uint32_t count)
{
	struct event_symbol head = {
		.header = {.type = EVENT_SYMBOL,
			   .time_ns = trace_process_at(session->trace, member->index)->end_ns,
			   .tgid = member->pid,
			   .tid = member->pid},
		.address = address,
		.count = count,
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

/* The newest of what was mapped knows best what is at an address now. */
static int address_resolve(struct session *session, const struct member_symbols *names, uint64_t address,
			   struct symbols_frame *frames)
{
	int count = names->told ? symbols_resolve(session->symbols, names->told, address, frames,
						  SYMBOLS_FRAMES_MAX)
				: 0;

	for (size_t i = names->count; i-- > 0 && !count;)
		count = symbols_resolve(session->symbols, names->modules[i], address, frames,
					SYMBOLS_FRAMES_MAX);
	return count;
}

int member_symbols_name(struct session *session, struct member *member)
{
	struct member_symbols *names = &member->symbols;
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	uint64_t address;

	/* Of one that has ended the trace may have given its index to another. */
	if ((!names->count && !names->told) || member->ended)
		return 0;
	member_symbols_watch(session, member, clock_ns(CLOCK_MONOTONIC));
	while (trace_unnamed_next(session->trace, member->index, &names->named, &address)) {
		int count = address_resolve(session, names, address, frames);
		/* Without room for its name it stays an address, and is not asked about again. */
		int err = account_is_full(count) ? symbol_feed(session, member, address, frames, 0)
			  : count < 0            ? count
				      : symbol_feed(session, member, address, frames, (uint32_t)count);

		if (err)
			return err;
	}
	return 0;
}

void session_name(struct session *session)
{
	for (size_t i = 0; i < session->count; i++) {
		int err = member_symbols_name(session, session->members[i]);

		if (err)
			log_info("PID %d: some native frames have no names: %s", session->members[i]->pid,
				 error_reason(err));
	}
}
