/* SPDX-License-Identifier: Apache-2.0 */
#include "session/follow.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/file_users.h"
#include "attach/links/hints.h"
#include "attach/map_watch.h"
#include "object/symbols/files.h"
#include "object/symbols/symbols.h"
#include "probe/process/plan_target.h"
#include "probe/process/translator.h"
#include "proc/container/memory_headroom.h"
#include "proc/process.h"
#include "session/returns.h"
#include "session/session.h"
#include "session/target/census.h"
#include "session/target/mode.h"
#include "session/target/place.h"
#include "session/target/state.h"
#include "session/target/symbols.h"
#include "session/target/target.h"
#include "session/target/target_governor.h"
#include "session/unwind_tables.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"

/*
 * Each candidate is inspected until its loader is done, and then again whenever it maps another
 * file with code.
 */

#define LOOK_FIRST_NS 2000000ull  /* after a candidate has changed */
#define LOOK_LAST_NS  20000000ull /* the longest pause between inspections until it is settled */
/* between inspections of a settled one, if mmap events are not available */
#define LOOK_BLIND_NS 100000000ull
#define LOADED_NS     10000000ull /* its loader is done if it maps no file with code for so long */
/* between looks at the CPU time of one that rests, and so much longer for each that does */
#define REST_NS    100000000ull
#define REST_OF_NS 5000000ull

static int is_wanted(const struct session *session, pid_t pid, const char *name)
{
	return session->opts.wanted ? session->opts.wanted(session->opts.wanted_context, pid, name)
				    : 1;
}

struct candidate *candidate_find(struct session *session, uint32_t pid)
{
	for (size_t i = session->candidate_count; i-- > 0;)
		if ((uint32_t)session->candidates[i].late.pid == pid)
			return &session->candidates[i];
	return NULL;
}

static void candidate_remove(struct session *session, struct candidate *candidate)
{
	*candidate = session->candidates[--session->candidate_count];
}

/* The same when its process has ended: counts it if its program was never examined. */
static void candidate_ended(struct session *session, struct candidate *candidate)
{
	if (candidate->rests) {
		session->ended_resting += candidate->wanted > 0;
	} else if (!candidate->examined) {
		session->ended_unexamined += candidate->wanted > 0;
		session->ended_unnamed += candidate->wanted < 0;
	}
	candidate_remove(session, candidate);
}

/*
 * 1: the process was last known as one that is traced, or to be traced, without Python; 0: as
 * another one; -1: it is not known.
 */
static int was_native(struct session *session, uint32_t pid)
{
	const struct candidate *candidate = candidate_find(session, pid);

	if (candidate)
		return candidate->native;
	for (size_t i = session->count; i-- > 0;)
		if ((uint32_t)session->targets[i]->pid == pid)
			return !(session->targets[i]->layers & 1u << EVENT_LAYER_PYTHON);
	return -1;
}

/*
 * By default, programs that a Python process starts are not wanted without Python: each helper
 * would be another process in the report. Programs that other processes start are, and so are all
 * programs if all processes are traced.
 */
static int native_wanted(struct session *session, uint32_t pid, uint32_t parent)
{
	uint32_t layers = session->opts.plan.layers;
	int native;

	if (layers || session->opts.everywhere)
		return layers != 1u << EVENT_LAYER_PYTHON;
	native = was_native(session, pid);
	if (native < 0)
		native = was_native(session, parent);
	return native > 0;
}

/* Schedules an inspection: it is new, or has mapped a new file. NULL: no memory. */
static struct candidate *candidate_touch(struct session *session, uint32_t pid)
{
	struct candidate *candidate = candidate_find(session, pid);
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!candidate) {
		if (ARRAY_RESERVE(NULL, session, candidates, candidate_count, candidate_capacity,
				  1))
			return NULL;
		candidate = &session->candidates[session->candidate_count++];
		*candidate = (struct candidate){.late.pid = (pid_t)pid, .wanted = -ESRCH};
	}
	candidate->settled = 0;
	candidate->born_ns = now;
	candidate->next_ns = now + LOOK_FIRST_NS;
	return candidate;
}

/* The same for a new program. parent: its parent's pid, 0: not known; name: its comm, or NULL. */
static void candidate_renew(struct session *session, uint32_t pid, uint32_t parent,
			    const char *name)
{
	int native = native_wanted(session, pid, parent);
	struct candidate *candidate = candidate_find(session, pid);

	if (candidate)
		candidate_remove(session, candidate);
	candidate = candidate_touch(session, pid);
	if (!candidate)
		return;
	candidate->native = native;
	/*
	 * Asked at once: it may end before it is inspected. One that is traced later at most is
	 * asked about then: beside dozens of brief processes a second there is no time for it.
	 */
	candidate->rests = session->opts.after_cpu_ns > 0;
	if (!candidate->rests)
		candidate->wanted = is_wanted(session, (pid_t)pid, name);
}

/* CPU time of its process. 0; -ESRCH. */
static int cpu_read(struct candidate *candidate, uint64_t *cpu_ns)
{
	if (!candidate->clock && clock_getcpuclockid(candidate->late.pid, &candidate->clock))
		return -ESRCH;
	return clock_read(candidate->clock, cpu_ns);
}

int candidate_await(struct session *session, pid_t pid)
{
	if (target_find(session, (uint32_t)pid) || candidate_find(session, (uint32_t)pid))
		return 0;
	candidate_renew(session, (uint32_t)pid, 0, NULL);
	struct candidate *candidate = candidate_find(session, (uint32_t)pid);
	if (!candidate)
		return -ENOMEM;
	int err = cpu_read(candidate, &candidate->cpu_ns);
	candidate->rests = !err;
	candidate->wanted = 1;
	if (err)
		candidate_remove(session, candidate);
	return err;
}

size_t session_resting(const struct session *session)
{
	size_t count = 0;

	for (size_t i = 0; i < session->candidate_count; i++)
		count += session->candidates[i].rests && session->candidates[i].wanted > 0;
	return count;
}

/*
 * What has hardly run since it was found is not even looked at: hundreds of processes that sleep
 * cost no more than their CPU time to be read.
 */
static bool candidate_rests(struct session *session, struct candidate *candidate, uint64_t now)
{
	uint64_t cpu_ns;

	candidate->rests = session->opts.after_cpu_ns && !cpu_read(candidate, &cpu_ns) &&
			   cpu_ns < candidate->cpu_ns + session->opts.after_cpu_ns;
	if (candidate->rests) {
		candidate->settled = 1;
		candidate->next_ns = now + REST_NS + REST_OF_NS * session->candidate_count;
	}
	return candidate->rests;
}

/*
 * -ESRCH in place of an error, if the process ends just now: its first thread may be gone before
 * the others, and its last records are still to come. Else err.
 */
static int ending_error(pid_t pid, int err)
{
	struct process_info info;

	if (!err || err == -EOWNERDEAD)
		return err;
	return process_info_read(pid, &info) || info.zombie || info.headless ? -ESRCH : err;
}

/* Logs that a process is not traced: the first SESSION_LOGS ones, the others with -v. */
static void refuse(struct session *session, pid_t pid, int err)
{
	const char *reason = error_reason(err);

	if (err == -EOWNERDEAD) /* the session ends, and reports it once */
		return;
	/* If all processes are watched, some refusals are to be expected. */
	if (session->opts.watch != ABI_WATCH_ALL && session->refusals++ < SESSION_LOGS)
		log_info("PID %d is not traced: %s", (int)pid, reason);
	else
		log_debug("PID %d is not traced: %s", (int)pid, reason);
	if (session->refusals == SESSION_LOGS)
		log_info("further processes that are not traced are logged only with -v");
}

/*
 * Nothing is wanted in the files mapped so far: its loader may have been delayed. Or it was refused
 * without Python, which it may load later. It is inspected again when it maps a file. 0: mmap
 * events are not available.
 */
static int candidate_rest(struct session *session, pid_t pid, uint64_t now, bool refused)
{
	struct candidate *candidate = session->maps ? candidate_find(session, (uint32_t)pid) : NULL;

	if (!candidate)
		return 0;
	if (candidate->born_ns <= now) {
		candidate->settled = candidate->examined = 1;
		candidate->refused = refused;
		candidate->next_ns = UINT64_MAX;
	}
	return 1;
}

/* What becomes of a candidate that was inspected. */
enum candidate_look { LOOK_KEEP, LOOK_REMOVE, LOOK_ENDED };

static enum candidate_look candidate_look(struct session *session, struct candidate *candidate,
					  uint64_t now)
{
	uint64_t pause = (now - candidate->born_ns) / 4;
	pid_t pid = candidate->late.pid;
	struct target *target = target_find(session, (uint32_t)pid);
	int found, settled, err;
	bool without_python = false;

	if (target && !target->execd)
		return LOOK_REMOVE;
	if (candidate->wanted && candidate_rests(session, candidate, now))
		return LOOK_KEEP;
	if (!candidate->late.mapped) {
		int wanted = is_wanted(session, pid, NULL);

		if (!wanted)
			return LOOK_REMOVE;
		if (wanted > 0)
			candidate->wanted = 1;
	}
	found = late_look(&candidate->late, plan_cache_files(session->plans.python));
	if (found == -ESRCH)
		return LOOK_ENDED;
	/* While it is being loaded, it may still map Python. */
	settled = !found && candidate->late.looked == candidate->late.mapped;
	if (settled && candidate->native && !candidate->refused) {
		found = now - candidate->born_ns >= LOADED_NS;
		without_python = found;
		settled = 0;
	}
	if (found > 0) {
		/* It drains, which may move candidates: the pointer is invalid then. */
		err = ending_error(pid, session_add_followed(session, pid));
		if (err == -ESRCH)
			return LOOK_ENDED;
		if (err)
			refuse(session, pid, err);
		without_python &= err != 0;
		return (without_python || err == -ENOENT) &&
				       candidate_rest(session, pid, now, err != -ENOENT)
			       ? LOOK_KEEP
			       : LOOK_REMOVE;
	}
	if (found < 0)
		refuse(session, pid, found);
	candidate->settled = settled || found < 0;
	candidate->examined |= candidate->settled;
	if (candidate->settled)
		pause = session->maps ? UINT64_MAX - now : LOOK_BLIND_NS;
	else if (pause < LOOK_FIRST_NS)
		pause = LOOK_FIRST_NS;
	else if (pause > LOOK_LAST_NS)
		pause = LOOK_LAST_NS;
	candidate->next_ns = now + pause;
	return LOOK_KEEP;
}

/* Inspects the candidates that are due, until the time `until`. Returns the time. */
static uint64_t candidates_look(struct session *session, uint64_t now, uint64_t until)
{
	for (size_t i = 0; i < session->candidate_count && now < until; i++) {
		pid_t pid = session->candidates[i].late.pid;
		struct candidate *candidate;
		enum candidate_look look;

		if (session->candidates[i].next_ns > now)
			continue;
		look = candidate_look(session, &session->candidates[i], now);
		candidate = candidate_find(session, (uint32_t)pid);
		/* If it has called exec meanwhile, the candidate is a new one. */
		if (candidate && candidate->born_ns <= now) {
			if (look == LOOK_ENDED)
				candidate_ended(session, candidate);
			else if (look == LOOK_REMOVE)
				candidate_remove(session, candidate);
		}
		now = clock_ns(CLOCK_MONOTONIC);
	}
	return now;
}

/* Makes every process that is neither a target nor a candidate a candidate. */
static void untracked_find(struct session *session)
{
	pid_t *pids = NULL;
	size_t count = 0;

	if (process_list(&pids, &count))
		return;
	for (size_t i = 0; i < count; i++)
		if (pids[i] != getpid() && !target_find(session, pids[i]) &&
		    !candidate_find(session, pids[i]))
			candidate_renew(session, (uint32_t)pids[i], 0, NULL);
	free(pids);
}

size_t session_unnamed(const struct session *session)
{
	return session->ended_unnamed;
}

size_t session_unexamined(const struct session *session)
{
	return session->ended_unexamined;
}

size_t session_rested(const struct session *session)
{
	return session->ended_resting;
}

int session_undecided(const struct session *session)
{
	for (size_t i = 0; i < session->candidate_count; i++)
		if (!session->candidates[i].settled)
			return 1;
	return 0;
}

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

static bool is_settled(const struct session *session, const struct module *module)
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

/* Makes BPF stop tracing this pid with this address-space id, and discards its records. */
static void session_discard(struct session *session, uint32_t pid, uint32_t space_id)
{
	attach_forget(session->attach, pid, space_id);
	discard_feed(session, pid);
}

static bool needs_inspection(const struct session *session, const struct target *target)
{
	const struct modules *reported = target->symbols.reported;

	return !reported || !reported->count || settled_count(session, reported) < reported->count;
}

/* Records an exec or a mapping of an exec'd program. 1: it needs no inspection. */
static int execd_mapped(struct session *session, const struct map_watch_record *record)
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

/* Makes a target of a program that BPF has made a target. 0, -errno. */
static int execd_announce(struct session *session, const struct event_appear *event)
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

/* A target has ended. 1: nothing in it was probed yet, and it is discarded. */
/* A program that shares a probed libc with others had probes, even if it never hit one. */
static int execd_ended_unprobed(struct session *session, struct target *target)
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

static void execs_free(struct session *session)
{
	execs_drop(session, 0, session->execd_count);
	free(session->execs);
	free(session->files_settled);
}

/*
 * Processes that appear while a session runs.
 *
 * A child of a target is traced from its first instruction: BPF makes it a target, and the session
 * announces it in the stream after its parent's fork, before any record of its own. A process that
 * has called exec becomes a candidate (candidate_touch()), or BPF makes it a target, too
 * (execd_settle()). Nothing may be attached while the ring buffer is drained: follow_step() does it
 * afterwards.
 */

#define SETTLE_NS      2000000ull  /* after a target has mapped a file with code */
#define CHILD_DELAY_NS 50000000ull /* after the fork */
#define STRETCH_NS     20000000ull /* of work, until the ring buffer is drained */

/* Events of processes that are not watched are ignored. */
static void process_mapped(struct session *session, uint32_t tgid)
{
	struct target *target = target_find(session, tgid);
	struct candidate *candidate = candidate_find(session, tgid);

	if (candidate || (target && target->execd))
		candidate = candidate_touch(session, tgid);
	if (candidate && target)
		candidate->native = 1;
	if (target && !target->execd && !target->mapped_ns &&
	    target->layers & 1u << EVENT_LAYER_NATIVE)
		target->mapped_ns = clock_ns(CLOCK_MONOTONIC);
}

/*
 * Many programs name themselves after they have begun: one that was not wanted by its first name is
 * asked about again. One that is already known has been asked for, or is about to be.
 */
static void process_renamed(struct session *session, uint32_t tgid, const char *name)
{
	if (session->opts.wanted && !target_find(session, tgid) && !candidate_find(session, tgid))
		candidate_renew(session, tgid, 0, name);
}

static void mapped_take(void *context, const struct map_watch_record *record)
{
	struct session *session = context;
	struct target *target = record->exec ? NULL : target_find(session, record->tgid);

	if (record->renamed) {
		process_renamed(session, record->tgid, record->renamed);
		return;
	}
	if (record->map.inode && translator_of(record->map.path))
		translator_appears(session, (pid_t)record->tgid, translator_of(record->map.path));
	if (session->unwind && !record->exec && (session->opts.everywhere || target))
		unwind_loader_map(session->unwind, (pid_t)record->tgid, &record->map);
	if (target && record->map.inode)
		target->symbols.looked_ns = 0; /* its names are looked for in the file at once */
	/* Anonymous memory has nothing to probe. */
	if ((record->exec || record->map.inode) && !execd_mapped(session, record) && !record->exec)
		process_mapped(session, record->tgid);
}

static void maps_drain(struct session *session)
{
	uint64_t lost;

	if (!session->maps)
		return;
	map_watch_drain(session->maps, mapped_take, session);
	lost = map_watch_lost(session->maps);
	if (lost == session->maps_lost)
		return;
	session->maps_lost = lost;
	for (size_t i = 0; i < session->candidate_count; i++)
		candidate_touch(session, (uint32_t)session->candidates[i].late.pid);
	for (size_t i = 0; i < session->count; i++)
		if (!session->targets[i]->ended)
			process_mapped(session, (uint32_t)session->targets[i]->pid);
}

/* If no target can be made of a program, BPF stops tracing it and its records are dropped. */
static void execd_appear(struct session *session, const struct event_appear *event)
{
	int err = execd_announce(session, event);

	if (!err)
		return;
	session_discard(session, event->header.tgid, event->space_id);
	refuse(session, (pid_t)event->header.tgid, err);
}

/* A child that BPF has made a target: if its parent is no target, the child is dropped. */
static int fork_takes(struct session *session, const struct event_process *fork)
{
	if (target_find(session, fork->header.tgid))
		return 0;
	if (fork->code & EVENT_FORK_TRACED) {
		session_discard(session, fork->other, fork->space_id);
		candidate_touch(session, fork->other);
	}
	return 1;
}

/*
 * A program or a child begins with the pid of a target: the record of that target's end was lost,
 * or it called exec while it was attached to, and the target describes the previous program.
 */
static void target_supersede(struct session *session, uint32_t tgid, uint32_t type)
{
	struct target *target = target_find(session, tgid);

	if (!target)
		return;
	target_forget(session, target);
	target_end(session, target, type);
}

static void program_appears(struct session *session, const struct event_appear *event)
{
	struct candidate *candidate = candidate_find(session, event->header.tgid);

	target_supersede(session, event->header.tgid, EVENT_EXEC);
	if (!event->layers) {
		candidate_renew(session, event->header.tgid, event->parent, event->name);
		return;
	}
	if (candidate)
		candidate_remove(session, candidate);
	maps_drain(session);
	execd_appear(session, event);
}

int follow_takes(struct session *session, const void *record)
{
	const struct event_header *header = record;
	struct candidate *candidate;
	struct target *target;

	switch (header->type) {
	case EVENT_APPEAR:
		program_appears(session, record);
		return 1;
	case EVENT_FORK:
		return fork_takes(session, record);
	case EVENT_EXIT:
	case EVENT_EXEC:
		candidate = candidate_find(session, header->tgid);
		target = target_find(session, header->tgid);
		/* A target has a table, or is counted as unprobed. */
		if (candidate && !target && header->type == EVENT_EXIT)
			candidate_ended(session, candidate);
		else if (candidate)
			candidate_remove(session, candidate);
		if (target && execd_ended_unprobed(session, target))
			target = NULL;
		return !target;
	default:
		return 0;
	}
}

/* Called after the fork's record was fed: the child inherits the tables as of then. */
static int child_announce(struct session *session, const struct target *parent,
			  const struct event_process *fork)
{
	struct event_target record = parent->announced;
	uint64_t later_ns = fork->header.time_ns - record.header.time_ns;
	struct process_info info;
	struct target *target;
	int err;

	target_supersede(session, fork->other, EVENT_EXIT);
	err = target_new(session, (pid_t)fork->other, &target);
	if (err)
		return err;
	err = python_runtime_inherit(&parent->runtime, target->pid, &target->runtime);
	target->runtime.target.space_id = fork->space_id;
	record.header.tgid = record.header.tid = fork->other;
	record.header.time_ns = fork->header.time_ns;
	record.realtime_ns += later_ns;
	/* What is in its heap is as old as that of its parent, which has run on since. */
	if (record.age_ns)
		record.age_ns += later_ns;
	record.parent = fork->header.tgid;
	record.ns_pid = 0;
	record.start_ticks = process_info_read((pid_t)fork->other, &info) ? 0 : info.start_ticks;
	if (!err)
		err = target_begin(session, target, &record);
	if (err) {
		target_abandon(session, target);
		return err;
	}
	if (trace_process_at(session->trace, target->index)->not_inherited)
		log_info("PID %d does not begin with the blocks of PID %u, which has forked it: "
			 "there is no memory for a copy of its tables (--budget)",
			 target->pid, record.parent);
	target->mode = parent->mode;
	target->layers = parent->layers;
	target->large_blocks = parent->large_blocks;
	target->large_windowed = parent->large_windowed;
	target->pools_off = parent->pools_off;
	target->reuse_unseen = parent->reuse_unseen;
	target->self_sampled = parent->self_sampled;
	target->ends_unseen = parent->ends_unseen;
	target->off = parent->off;
	target->heap_unreadable = parent->heap_unreadable;
	target->census_ns = clock_ns(CLOCK_MONOTONIC);
	if (target->mode == EVENT_MODE_WINDOWS)
		target_window_inherited(session, target);
	/* The child maps what its parent maps. */
	target->execd = parent->execd;
	target->inherited = !parent->execd;
	session->inherited += target->inherited;
	if (parent->execd && candidate_find(session, (uint32_t)parent->pid))
		process_mapped(session, fork->other);
	return target_symbols_inherit(session, target, parent);
}

/* The kernel sends SIGTRAP for a breakpoint that it has not placed itself. */
static void end_explain(const struct target *target, uint32_t status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP)
		log_info("PID %d was killed by SIGTRAP. If it has not done that itself, it ran a "
			 "copy of its code with a probe's breakpoint in it: programs that move "
			 "their code to huge pages make such copies, libraries that hook functions "
			 "and debuggers, too",
			 target->pid);
}

void follow_note(struct session *session, const void *record)
{
	const struct event_header *header = record;
	const struct event_process *event = record;
	struct target *target;

	if (header->type != EVENT_EXIT && header->type != EVENT_EXEC && header->type != EVENT_FORK)
		return;
	target = target_find(session, header->tgid);
	if (!target)
		return;
	if (header->type == EVENT_EXIT)
		end_explain(target, event->code);
	if (header->type != EVENT_FORK)
		target->ended = 1;
	else if (event->code & EVENT_FORK_TRACED && child_announce(session, target, event))
		log_info("PID %u, which PID %d has forked, is not traced: no memory", event->other,
			 target->pid);
}

/*
 * The child has the probes that are in files; private ones are placed here. A walk of its heap
 * finds what it allocated before.
 */
static void child_attach(struct session *session, struct target *target)
{
	struct plan_target_opts opts = target_plan_opts(session, target);
	struct plan_target plans;
	int err;

	/* Its parent's mode, which the governor may have changed. */
	if (target->layers & 1u << EVENT_LAYER_PYTHON)
		opts.python.mode = target_plan_mode(target->mode);
	err = plan_target(target->pid, &opts, &session->plans, &plans);
	target->inherited = 0;
	session->inherited--;
	if (!err) {
		err = target->off ? 0
				  : target_probe(session, target, &plans, target_groups(target));
		if (!err)
			err = target_provider_begin(session, target, &plans);
		if (!err && target->mode == EVENT_MODE_WINDOWS && !target->off)
			target_windows_begin(session, target, &plans);
		plan_target_free(&plans);
	}
	if (!err)
		err = target_governor_begin(session, target);
	if (!err)
		target_cost_begin(session, target, 0);
	if (!err)
		target_reconcile(session, target, 0, 0);
	/* -ESRCH: its end will be reported. */
	if (err && ending_error(target->pid, err) != -ESRCH) {
		refuse(session, target->pid, err);
		target_forget(session, target);
		target_end(session, target, EVENT_EXIT);
	} else if (!err) {
		log_debug("PID %d, forked by PID %u, is traced, too", target->pid,
			  target->announced.parent);
	}
}

/*
 * If the probes are in files, a child has them, and nothing is urgent. Most children call exec
 * soon, and need no attachment at all.
 */
static bool child_is_due(const struct session *session, const struct target *target, uint64_t now)
{
	return target->inherited && !target->ended &&
	       (!session->opts.everywhere || now - target->census_ns >= CHILD_DELAY_NS);
}

/* Probes the allocators in newly mapped files of a target. Existing probes are kept. */
static void target_extend(struct session *session, struct target *target)
{
	struct plan_target plans = {0};
	int err = plan_native_process(target->pid, session->plans.native, &plans.native,
				      &plans.native_count);

	target->mapped_ns = 0;
	if (!err)
		err = returns_check(session, target->pid, &plans)
			      ?: target_probe(session, target, &plans, target_groups(target));
	if (!err)
		target_windows_extend(session, target, &plans);
	if (!err)
		err = target_provider_begin(session, target, &plans);
	free(plans.native);
	if (err && err != -ESRCH)
		refuse(session, target->pid, err);
}

void follow_step(struct session *session)
{
	uint64_t begin = clock_ns(CLOCK_MONOTONIC), now = begin;

	maps_drain(session);
	/* Before probes are placed: until then all stacks through the new files end in them. */
	session_unwind_step(session);
	for (size_t i = 0; i < session->count && now - begin < STRETCH_NS; i++) {
		struct target *target = session->targets[i];

		if (!target->mapped_ns || target->ended || target->off ||
		    now - target->mapped_ns < SETTLE_NS)
			continue;
		target_extend(session, target);
		now = clock_ns(CLOCK_MONOTONIC);
	}
	now = candidates_look(session, now, begin + STRETCH_NS);
	for (size_t i = 0; i < session->count && session->inherited && now - begin < STRETCH_NS;
	     i++) {
		if (child_is_due(session, session->targets[i], now))
			child_attach(session, session->targets[i]);
		now = clock_ns(CLOCK_MONOTONIC);
	}
}

/* The processes for names are forked here, while this one is small and may use the network. */
static int names_new(struct session *session)
{
	const char *servers = session->opts.debuginfod;
	int early = session->opts.watch != ABI_WATCH_NONE && execd_layers(&session->opts);
	int err = early || servers
			  ? symbols_new_in(&session->symbols, trace_account(session->trace))
			  : 0;

	return !err && servers ? symbols_fetch_from(session->symbols, servers) : err;
}

int follow_new(struct session *session)
{
	int err = names_new(session);

	if (err || session->opts.watch == ABI_WATCH_NONE)
		return err;
	err = map_watch_open(&session->maps);
	/* Without it, candidates are inspected periodically. */
	if (err) {
		err = hint_tell(HINT_EVENT, err);
		log_info("what processes map later is found by periodic inspection: %s",
			 error_reason(err));
	}
	return err == -ENOMEM ? err : 0;
}

/*
 * Members whose exec record was lost: BPF has removed them from its targets. The record of the new
 * program may be lost, too.
 */
static void missed_execs_find(struct session *session)
{
	session_pull(session);
	for (size_t i = 0; i < session->count; i++) {
		struct target *target = session->targets[i];
		uint32_t tgid = (uint32_t)target->pid;

		if (target->ended ||
		    attach_is_target(session->attach, tgid, target->runtime.target.space_id))
			continue;
		target_end(session, target, EVENT_EXEC);
		candidate_renew(session, tgid, 0, NULL);
	}
}

void follow_lost(struct session *session, uint64_t lost)
{
	if (session->opts.watch == ABI_WATCH_NONE || lost == session->process_lost)
		return;
	session->process_lost = lost;
	missed_execs_find(session);
	if (session->opts.watch == ABI_WATCH_ALL)
		untracked_find(session);
}

int session_expect(struct session *session, const pid_t *pids, size_t count)
{
	pid_t *expected = malloc((count + 1) * sizeof(*expected));

	if (!expected)
		return -ENOMEM;
	memcpy(expected, pids, count * sizeof(*expected));
	free(session->expected);
	session->expected = expected;
	session->expected_count = count;
	return 0;
}

int session_watch(struct session *session, pid_t pid)
{
	return attach_follow(session->attach, pid);
}

void follow_free(struct session *session)
{
	map_watch_close(session->maps);
	execs_free(session);
	container_names_free(&session->container_names);
	free(session->candidates);
	free(session->expected);
	file_users_free(session->users);
	memory_headroom_free(session->headroom);
}
