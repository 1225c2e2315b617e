/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where all that runs is traced, BPF makes every program that is called a target at once, as one without Python: it may be gone
 * before anybody could have looked at it. Here it becomes a member when its record comes, and is given what the kernel has told of
 * the files that it maps, so that its frames have names when it is gone.
 *
 * Whether it has probes at all depends on its files. Once a process was looked at, and all there is in its files is probed, another
 * with the same ones needs no look. Any other is a candidate; if Python is found in it, it begins anew as a process with Python.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "probe/session_state.h"
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

	return number / 8 < session->files_settled_room &&
	       session->files_settled[number / 8] & 1u << number % 8;
}

static int all_settled(const struct session *session, const struct modules *told)
{
	for (size_t i = 0; i < told->count; i++)
		if (!is_settled(session, &told->entries[i]))
			return 0;
	return told->count > 0;
}

static void file_settle(struct session *session, uint32_t number)
{
	if (!array_reserve(&session->files_settled, &session->files_settled_room,
			   session->files_settled_room, number / 8 + 1 - session->files_settled_room, 1))
		session->files_settled[number / 8] |= 1u << number % 8;
}

static void newborns_drop(struct session *session, size_t at, size_t count)
{
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

	while (old < session->newborn_count && session->newborns[old].exec_ns + UNCLAIMED_NS < record->time_ns)
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
	return told && !modules_map(told, &record->map) &&
	       is_settled(session, modules_find(told, record->map.start));
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

int newborn_announce(struct session *session, const struct event_appear *event)
{
	struct member *member = member_find(session, event->header.tgid);
	struct candidate *candidate = NULL;
	int err;

	/* The record of its exec was lost. */
	if (member)
		member_end(session, member, EVENT_EXEC);
	err = member_new(session, (pid_t)event->header.tgid, &member);
	if (err)
		return err;
	member->newborn = 1;
	member->program = (struct abi_file){.inode = event->program_inode, .device = event->program_device};
	member->mode = EVENT_MODE_EXACT;
	member->layers = event->layers;
	member->heap_unreadable = 1;
	err = member_announce(session, member, event->name, (pid_t)event->ns_pid, 0, event->header.time_ns);
	if (err) {
		member_close(session, member);
		return err;
	}
	log_debug("attached to PID %d (%s): a new program, from its first instruction on", member->pid,
		  event->name);
	session->members[session->count++] = member;
	newborn_claim(session, member, event->header.time_ns);
	if (!member->symbols.told || !all_settled(session, member->symbols.told))
		candidate = candidate_touch(session, event->header.tgid);
	if (candidate)
		candidate->native = 1;
	return 0;
}

/* Its table was of nothing that is wanted. What is still in the ring buffer was of that, too. */
static void newborn_discard(struct session *session, struct member *member)
{
	struct event_mark record = {
		.header = {.type = EVENT_DISCARD,
			   .size = sizeof(record),
			   .time_ns = clock_ns(CLOCK_MONOTONIC),
			   .tgid = member->pid,
			   .tid = member->pid},
	};

	session_feed(session, &record, sizeof(record));
	member->ended = 1;
}

/* The files that it has mapped by now; how many. Caller frees. */
static size_t files_list(const struct member *member, uint32_t **out)
{
	const struct modules *told = member->symbols.told;
	size_t count = 0;

	*out = told ? malloc((told->count + 1) * sizeof(**out)) : NULL;
	for (size_t i = 0; *out && i < told->count; i++)
		if (told->entries[i].file)
			(*out)[count++] = told->entries[i].file->number;
	return count;
}

int newborn_settle(struct session *session, struct member *member, int *err)
{
	pid_t pid = member->pid;
	struct plan_target target;
	uint32_t *files;
	size_t count = files_list(member, &files);

	*err = plan_target(pid, &session->opts.plan, &session->plans, &target);
	if (!*err && !target.runtime.version_hex) {
		*err = member_probe(session, member, &target, ATTACH_ALL);
		for (size_t i = 0; i < count && !*err; i++)
			file_settle(session, files[i]);
		member->newborn = *err != 0;
	}
	if (!*err)
		plan_target_free(&target);
	free(files);
	/* One that has ended has said all there was. */
	if (!member->newborn || *err == -ESRCH)
		return 1;
	attach_forget(session->attach, (uint32_t)pid);
	session_pull(session);
	if (!member->ended)
		newborn_discard(session, member);
	if (!*err)
		attach_interpreter(session->attach, &member->program);
	return *err != 0;
}

/* On some file systems (btrfs, overlay) stat() gives another number: then newborn_settle() will have the right one. */
void newborn_except(struct session *session, pid_t pid)
{
	struct abi_file program = {0};
	struct stat st;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (!newborn_layers(&session->opts) || stat(path, &st))
		return;
	program.inode = st.st_ino;
	program.device = major(st.st_dev) << 20 | minor(st.st_dev);
	attach_interpreter(session->attach, &program);
}

static int any_settled(const struct session *session, const struct modules *told)
{
	for (size_t i = 0; told && i < told->count; i++)
		if (is_settled(session, &told->entries[i]))
			return 1;
	return 0;
}

/* One that had libc in common with others had its probes, whether it came upon them or not. */
int newborn_unseen(struct session *session, struct member *member)
{
	const struct trace_process *process = trace_process_at(session->trace, member->index);

	if (!member->newborn || process->parent || process->counters.events > 1 ||
	    any_settled(session, member->symbols.told))
		return 0;
	session->unlooked++;
	newborn_discard(session, member);
	return 1;
}

void newborns_free(struct session *session)
{
	newborns_drop(session, 0, session->newborn_count);
	free(session->newborns);
	free(session->files_settled);
}
