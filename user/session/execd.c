/* SPDX-License-Identifier: Apache-2.0 */
/*
 * If all processes are traced, BPF makes every program a target at its exec, as one without Python:
 * it may end before the session can inspect it. It becomes a target when its record is drained. The
 * files that mmap events reported for it are kept, so that its frames have names after it has
 * ended.
 *
 * It is probed if an allocator is in its files. Once a process was inspected and everything in its
 * files is probed, other processes with the same files need no inspection. Any other one is a
 * candidate; if Python is found in it, it begins anew as a process with Python.
 */
#include "session/execd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "attach/map_watch.h"
#include "object/symbols/files.h"
#include "object/symbols/symbols.h"
#include "probe/process/plan_target.h"
#include "session/candidate.h"
#include "session/target/place.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"

#define UNCLAIMED_NS 2000000000ull /* if BPF's record has not come by then, it was lost */

/* A program that has called exec, and whose record from BPF has not come yet. */
struct execd {
	uint32_t tgid;
	uint64_t exec_ns;
	struct modules *reported; /* by mmap events */
};

uint32_t execd_layers(const struct session_opts *opts)
{
	/* The governor removes the probes of single processes, and these are in files. */
	return opts->everywhere && opts->overhead <= 0 ? plan_target_native_layers(&opts->plan) : 0;
}

static int is_settled(const struct session *session, const struct module *module)
{
	uint32_t number = module && module->file ? module->file->number : 0;

	return number < session->files_settled_capacity && session->files_settled[number];
}

static size_t settled_count(const struct session *session, const struct modules *modules)
{
	size_t count = 0;

	for (size_t i = 0; modules && i < modules->count; i++)
		count += is_settled(session, &modules->entries[i]);
	return count;
}

/* Without memory, the file is inspected again. */
static void file_settle(struct session *session, uint32_t number)
{
	size_t capacity = session->files_settled_capacity;

	if (number >= capacity &&
	    array_reserve(&session->files_settled, &session->files_settled_capacity, capacity,
			  number + 1 - capacity, 1))
		return;
	memset(session->files_settled + capacity, 0, session->files_settled_capacity - capacity);
	session->files_settled[number] = 1;
}

void execd_files_settle(struct session *session, const struct modules *modules)
{
	for (size_t i = 0; modules && i < modules->count; i++)
		if (modules->entries[i].file)
			file_settle(session, modules->entries[i].file->number);
}

static void execs_drop(struct session *session, size_t at, size_t count)
{
	if (!count)
		return;
	for (size_t i = at; i < at + count; i++)
		modules_free(session->execs[i].reported);
	session->execd_count -= count;
	memmove(&session->execs[at], &session->execs[at + count],
		(session->execd_count - at) * sizeof(*session->execs));
}

static void execd_add(struct session *session, const struct map_watch_record *record)
{
	struct execd execd = {.tgid = record->tgid, .exec_ns = record->time_ns};
	size_t old = 0;

	while (old < session->execd_count &&
	       session->execs[old].exec_ns + UNCLAIMED_NS < record->time_ns)
		old++;
	execs_drop(session, 0, old);
	/* Without memory, its frames have no names, and it is inspected. */
	if (ARRAY_RESERVE(NULL, session, execs, execd_count, execd_capacity, 1) ||
	    modules_begin(&execd.reported, session->symbols, (pid_t)record->tgid))
		return;
	session->execs[session->execd_count++] = execd;
}

static struct execd *execd_find(struct session *session, uint32_t tgid, uint64_t time_ns)
{
	for (size_t i = session->execd_count; i-- > 0;)
		if (session->execs[i].tgid == tgid && session->execs[i].exec_ns <= time_ns)
			return &session->execs[i];
	return NULL;
}

/* The target takes over the files that were reported for it. */
static void execd_claim(struct session *session, struct target *target, uint64_t time_ns)
{
	struct execd *execd = execd_find(session, (uint32_t)target->pid, time_ns);

	if (!execd)
		return;
	target->symbols.reported = execd->reported;
	execd->reported = NULL;
	execs_drop(session, (size_t)(execd - session->execs), 1);
}

void session_discard(struct session *session, uint32_t pid, uint32_t space_id)
{
	attach_forget(session->attach, pid, space_id);
	discard_feed(session, pid);
}

static int needs_inspection(const struct session *session, const struct target *target)
{
	const struct modules *reported = target->symbols.reported;

	return !reported || !reported->count || settled_count(session, reported) < reported->count;
}

int execd_mapped(struct session *session, const struct map_watch_record *record)
{
	struct execd *execd;
	struct modules *reported;
	struct target *target;

	if (!execd_layers(&session->opts))
		return 0;
	if (record->exec) {
		execd_add(session, record);
		return 1;
	}
	execd = execd_find(session, record->tgid, record->time_ns);
	target = execd ? NULL : target_find(session, record->tgid);
	reported = execd ? execd->reported : target ? target->symbols.reported : NULL;
	if (!reported || modules_map(reported, &record->map))
		return 0;
	return is_settled(session, modules_find(reported, record->map.start));
}

int execd_announce(struct session *session, const struct event_appear *event)
{
	struct candidate *candidate = NULL;
	struct target *target;
	int err = target_new(session, (pid_t)event->header.tgid, &target);

	if (err)
		return err;
	target->execd = 1;
	target->mode = EVENT_MODE_EXACT;
	target->layers = event->layers;
	target->runtime.target.space_id = event->space_id;
	target->heap_unreadable = 1;
	err = target_announce(session, target, event->name, (pid_t)event->ns_pid, 0,
			      event->header.time_ns);
	if (err) {
		target_abandon(session, target);
		return err;
	}
	execd_claim(session, target, event->header.time_ns);
	if (needs_inspection(session, target))
		candidate = candidate_touch(session, event->header.tgid);
	if (candidate)
		candidate->native = 1;
	log_debug("attached to PID %d (%s): a new program, from its first instruction on",
		  target->pid, event->name);
	return 0;
}

int execd_settle(struct session *session, struct target *target, int *err)
{
	struct modules *reported = NULL;
	struct plan_target plans;

	/* A copy: files that it maps from here on are not inspected here. */
	if (target->symbols.reported)
		*err = modules_copy(&reported, target->symbols.reported, target->pid);
	if (!*err)
		*err = plan_target(target->pid, &session->opts.plan, &session->plans, &plans);
	if (!*err) {
		if (!plans.runtime.version_hex) {
			*err = target_probe(session, target, &plans, ATTACH_ALL);
			if (!*err)
				*err = target_provider_begin(session, target, &plans);
			if (!*err)
				execd_files_settle(session, reported);
			target->execd = *err != 0;
		}
		plan_target_free(&plans);
	}
	modules_free(reported);
	/* Its loader may have been delayed: it is inspected again when it maps a file. */
	if (*err == -ENOENT) {
		log_debug("PID %d: nothing of it is probed so far: %s", target->pid,
			  error_reason(*err));
		target->no_allocator = 1;
		*err = 0;
		return 1;
	}
	target->no_allocator = 0;
	/* If it has ended, its records are complete. */
	if (!target->execd || *err == -ESRCH)
		return 1;
	/* The records in the ring buffer are to be discarded, too. */
	session_pull(session);
	if (!target->ended)
		target_discard(session, target);
	return *err != 0;
}

/* A program that shares a probed libc with others had probes, even if it never hit one. */
int execd_ended_unprobed(struct session *session, struct target *target)
{
	const struct trace_process *process = trace_process_at(session->trace, target->index);

	if (!target->execd || process->parent || process->counters.events > 1 ||
	    settled_count(session, target->symbols.reported))
		return 0;
	session->ended_unexamined += !target->no_allocator;
	/* BPF has removed it by itself. The target that now has this pid is the next program. */
	discard_feed(session, (uint32_t)target->pid);
	target->ended = 1;
	return 1;
}

void execs_end(struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->targets[i]->no_allocator && !session->targets[i]->ended)
			execd_ended_unprobed(session, session->targets[i]);
}

void execs_free(struct session *session)
{
	execs_drop(session, 0, session->execd_count);
	free(session->execs);
	free(session->files_settled);
}
