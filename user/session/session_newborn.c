/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where all that runs is traced, BPF makes every program that is called a target at once, as one
 * without Python: it may be gone before anybody could have looked at it. Here it becomes a member
 * when its record comes, and is given what the kernel has told of the files that it maps, so that
 * its frames have names when it is gone.
 *
 * Whether it has probes at all depends on its files. Once a process was looked at, and all there is
 * in its files is probed, another with the same ones needs no look. Any other is a candidate; if
 * Python is found in it, it begins anew as a process with Python.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "session/session_state.h"
#include "symbols/files.h"
#include "symbols/symbols.h"

#define UNCLAIMED_NS 2000000000ull /* a record that BPF has made of it by then was lost */

uint32_t newborn_layers(const struct session_opts *opts)
{
	/* The governor takes probes out of one process, and these lie in files. */
	return opts->everywhere && opts->overhead <= 0 ? plan_target_native_layers(&opts->plan) : 0;
}

static int is_settled(const struct session *session, const struct module *module)
{
	uint32_t number = module && module->file ? module->file->number : 0;

	return number < session->files_settled_room && session->files_settled[number];
}

static size_t settled_count(const struct session *session, const struct modules *modules)
{
	size_t count = 0;

	for (size_t i = 0; modules && i < modules->count; i++)
		count += is_settled(session, &modules->entries[i]);
	return count;
}

/* Without memory for it they are looked at again. */
static void file_settle(struct session *session, uint32_t number)
{
	size_t room = session->files_settled_room;

	if (number >= room && array_reserve(&session->files_settled, &session->files_settled_room,
					    room, number + 1 - room, 1))
		return;
	memset(session->files_settled + room, 0, session->files_settled_room - room);
	session->files_settled[number] = 1;
}

void newborn_files_settle(struct session *session, const struct modules *modules)
{
	for (size_t i = 0; modules && i < modules->count; i++)
		if (modules->entries[i].file)
			file_settle(session, modules->entries[i].file->number);
}

static void newborns_drop(struct session *session, size_t at, size_t count)
{
	if (!count)
		return;
	for (size_t i = at; i < at + count; i++)
		modules_free(session->newborns[i].told);
	session->newborn_count -= count;
	memmove(&session->newborns[at], &session->newborns[at + count],
		(session->newborn_count - at) * sizeof(*session->newborns));
}

static void newborn_add(struct session *session, const struct map_watch_record *record)
{
	struct newborn newborn = {.tgid = record->tgid, .exec_ns = record->time_ns};
	size_t old = 0;

	while (old < session->newborn_count &&
	       session->newborns[old].exec_ns + UNCLAIMED_NS < record->time_ns)
		old++;
	newborns_drop(session, 0, old);
	/* Without memory its frames have no names, and it is looked at. */
	if (array_reserve(&session->newborns, &session->newborn_room, session->newborn_count, 1,
			  sizeof(newborn)) ||
	    modules_begin(&newborn.told, session->symbols, (pid_t)record->tgid))
		return;
	session->newborns[session->newborn_count++] = newborn;
}

static struct newborn *newborn_find(struct session *session, uint32_t tgid, uint64_t time_ns)
{
	for (size_t i = session->newborn_count; i-- > 0;)
		if (session->newborns[i].tgid == tgid && session->newborns[i].exec_ns <= time_ns)
			return &session->newborns[i];
	return NULL;
}

/* What was told of it is the member's from here on. */
static void newborn_claim(struct session *session, struct member *member, uint64_t time_ns)
{
	struct newborn *newborn = newborn_find(session, (uint32_t)member->pid, time_ns);

	if (!newborn)
		return;
	member->symbols.told = newborn->told;
	newborn->told = NULL;
	newborns_drop(session, (size_t)(newborn - session->newborns), 1);
}

static void discard_feed(struct session *session, uint32_t pid)
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

void session_discard(struct session *session, uint32_t pid, uint32_t space)
{
	attach_forget(session->attach, pid, space);
	discard_feed(session, pid);
}

static void newborn_discard(struct session *session, struct member *member)
{
	session_discard(session, (uint32_t)member->pid, member->runtime.target.space);
	member->ended = 1;
}

/* Is it to be looked at? */
static int newborn_is_strange(const struct session *session, const struct member *member)
{
	const struct modules *told = member->symbols.told;

	return !told || !told->count || settled_count(session, told) < told->count;
}

int newborn_told(struct session *session, const struct map_watch_record *record)
{
	struct newborn *newborn;
	struct modules *told;
	struct member *member;

	if (!newborn_layers(&session->opts))
		return 0;
	if (record->exec) {
		newborn_add(session, record);
		return 1;
	}
	newborn = newborn_find(session, record->tgid, record->time_ns);
	member = newborn ? NULL : member_find(session, record->tgid);
	told = newborn ? newborn->told : member ? member->symbols.told : NULL;
	if (!told || modules_map(told, &record->map))
		return 0;
	return is_settled(session, modules_find(told, record->map.start));
}

int newborn_announce(struct session *session, const struct event_appear *event)
{
	struct candidate *candidate = NULL;
	struct member *member;
	int err = member_new(session, (pid_t)event->header.tgid, &member);

	if (err)
		return err;
	member->newborn = 1;
	member->mode = EVENT_MODE_EXACT;
	member->layers = event->layers;
	member->runtime.target.space = event->space;
	member->heap_unreadable = 1;
	err = member_announce(session, member, event->name, (pid_t)event->ns_pid, 0,
			      event->header.time_ns);
	if (err) {
		member_abandon(session, member);
		return err;
	}
	newborn_claim(session, member, event->header.time_ns);
	if (newborn_is_strange(session, member))
		candidate = candidate_touch(session, event->header.tgid);
	if (candidate)
		candidate->native = 1;
	log_debug("attached to PID %d (%s): a new program, from its first instruction on",
		  member->pid, event->name);
	return 0;
}

int newborn_settle(struct session *session, struct member *member, int *err)
{
	struct modules *told = NULL;
	struct plan_target target;

	/* What it maps while we look at it is not looked at. */
	if (member->symbols.told)
		*err = modules_copy(&told, member->symbols.told, member->pid);
	if (!*err)
		*err = plan_target(member->pid, &session->opts.plan, &session->plans, &target);
	if (!*err) {
		if (!target.runtime.version_hex) {
			*err = member_probe(session, member, &target, ATTACH_ALL);
			if (!*err)
				newborn_files_settle(session, told);
			member->newborn = *err != 0;
		}
		plan_target_free(&target);
	}
	modules_free(told);
	/* Its loader may have been kept waiting: it is looked at again when it maps a file. */
	if (*err == -ENOENT) {
		log_debug("PID %d: nothing of it is probed so far: %s", member->pid,
			  error_reason(*err));
		member->bare = 1;
		*err = 0;
		return 1;
	}
	member->bare = 0;
	/* One that has ended has said all there was. */
	if (!member->newborn || *err == -ESRCH)
		return 1;
	/* The rest of what is in the ring buffer is of that, too. */
	session_pull(session);
	if (!member->ended)
		newborn_discard(session, member);
	return *err != 0;
}

/* One that had libc in common with others had its probes, whether it came upon them or not. */
int newborn_unseen(struct session *session, struct member *member)
{
	const struct trace_process *process = trace_process_at(session->trace, member->index);

	if (!member->newborn || process->parent || process->counters.events > 1 ||
	    settled_count(session, member->symbols.told))
		return 0;
	session->unlooked += !member->bare;
	/*
	 * BPF has forgotten it by itself. What it has by now under this number is the next program.
	 */
	discard_feed(session, (uint32_t)member->pid);
	member->ended = 1;
	return 1;
}

void newborns_end(struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->members[i]->bare && !session->members[i]->ended)
			newborn_unseen(session, session->members[i]);
}

void newborns_free(struct session *session)
{
	newborns_drop(session, 0, session->newborn_count);
	free(session->newborns);
	free(session->files_settled);
}
