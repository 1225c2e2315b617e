/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for the addresses of native frames: records in the stream, so that a capture needs no files
 * of the target. The mappings are read as soon as a stack has an address outside of all known ones,
 * since a library may be unmapped later. Names are looked up ahead of time, between two drains,
 * without waiting for the worker; before a report all addresses must have names, and lookups that
 * are not complete by then are waited for within limits.
 */
#include "session/target/symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/symbols/symbols.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/interrupt.h"

/*
 * The least time between two reads of the mappings: JIT code comes and goes in anonymous memory,
 * and each of its addresses would cause one.
 */
#define LOOK_PERIOD_NS 100000000ull

/* The same for files that name code, of which most processes with a JIT write none. */
#define JIT_PERIOD_NS 500000000ull

/* CPU time for the names of one process; 100,000 addresses in CPython take 2 s. */
#define TARGET_SHARE_NS 10000000000ull

#define PREPARE_NS       5000000ull  /* between two drains */
#define PREPARE_SLICE_NS 500000ull   /* of that, before something that is more urgent */
#define SLICE_NS         50000000ull /* of a wait, between two checks for a signal */
/*
 * Waits are limited by the worker's CPU time, so that names do not depend on the load of the
 * machine, and by WALL_TIMES that much wall time.
 */
#define WALL_TIMES 10u
#define HURRY_NS   500000000ull /* for all names, after the user has asked for the end */
/* for all names, if nothing is drained any more, or no other process is traced */
#define END_NS        5000000000ull
#define NAMES_SHARE   10u           /* percent of the time while other processes are traced, */
#define NAMES_LEFT_NS 1000000000ull /* which accumulates up to this */

static bool is_native(const struct target *target)
{
	return (target->layers & ~(1u << EVENT_LAYER_PYTHON)) != 0;
}

/* Earlier snapshots are kept: stacks may hold addresses of memory that was unmapped since. */
int target_symbols_look(struct session *session, struct target *target)
{
	struct target_symbols *names = &target->symbols;
	int err;

	if (!session->symbols) {
		err = symbols_new_in(&session->symbols, trace_account(session->trace));
		if (err)
			return err;
	}
	if (names->count == TARGET_MODULES) {
		modules_free(names->modules[0]);
		memmove(names->modules, names->modules + 1,
			(--names->count) * sizeof(names->modules[0]));
	}
	names->looked_ns = clock_ns(CLOCK_MONOTONIC);
	err = modules_new(&names->modules[names->count], session->symbols, target->pid);
	names->count += !err;
	return err;
}

int target_symbols_begin(struct session *session, struct target *target)
{
	int err = is_native(target) && !target->symbols.count ? target_symbols_look(session, target)
							      : 0;

	/* -ESRCH: it has ended; addresses that its parent has named keep those names. */
	if (err && err != -ESRCH)
		log_info("PID %d: native frames will have no names: %s", target->pid,
			 error_reason(err));
	return err == -ENOMEM ? err : 0;
}

int target_symbols_inherit(struct session *session, struct target *target,
			   const struct target *parent)
{
	const struct target_symbols *from = &parent->symbols;
	int err;

	if (from->reported)
		return modules_copy(&target->symbols.reported, from->reported, target->pid);
	err = target_symbols_begin(session, target);
	if (from->count && target->symbols.count)
		modules_jit_share(target->symbols.modules[0], from->modules[from->count - 1]);
	return err;
}

void target_symbols_end(struct target *target)
{
	while (target->symbols.count)
		modules_free(target->symbols.modules[--target->symbols.count]);
	modules_free(target->symbols.reported);
	symbols_share_free(target->symbols.share);
}

/* The next modules to look up an address in, the most recent first. NULL after the last. */
static const struct modules *modules_next(const struct target_symbols *names, size_t *turn)
{
	size_t at = (*turn)++;

	if (names->reported && !at--)
		return names->reported;
	return at < names->count ? names->modules[names->count - 1 - at] : NULL;
}

static bool is_mapped(const struct target_symbols *names, uint64_t address)
{
	for (size_t i = names->count; i-- > 0;)
		if (modules_find(names->modules[i], address - 1))
			return 1;
	return names->reported && modules_find(names->reported, address - 1);
}

/* A file that names code is known to all modules of its process. */
static void jit_share(struct target_symbols *names, const struct modules *from)
{
	for (size_t i = 0; i < names->count; i++)
		if (names->modules[i] != from)
			modules_jit_share(names->modules[i], from);
	if (names->reported && names->reported != from)
		modules_jit_share(names->reported, from);
}

static bool is_without_jit(const struct target_symbols *names, uint64_t address)
{
	const struct modules *modules;
	const struct module *module;
	size_t turn = 0;

	while ((modules = modules_next(names, &turn))) {
		module = modules_find(modules, address - 1);
		if (module)
			return modules_jit_missing(modules, module);
	}
	return 0;
}

/* Its compiler may have begun to write a perf map or a jitdump since. */
static void jit_look(struct target_symbols *names, uint64_t now)
{
	struct modules *modules = names->count ? names->modules[names->count - 1] : names->reported;

	names->jit_looked_ns = now;
	names->jit_wanted = 0;
	if (modules && !modules_jit_look(modules))
		jit_share(names, modules);
}

void target_symbols_watch(struct session *session, struct target *target, uint64_t now)
{
	struct target_symbols *names = &target->symbols;
	uint64_t address;
	int missing = 0;

	if (!is_native(target) || target->ended || target->pidfd < 0 ||
	    now - names->looked_ns < LOOK_PERIOD_NS)
		return;
	while (trace_unnamed_next(session->trace, target->index, &names->watched, &address)) {
		missing |= !is_mapped(names, address);
		names->jit_wanted |= is_without_jit(names, address);
	}
	if (missing && !target_symbols_look(session, target))
		jit_share(names, names->modules[names->count - 1]);
	else if (names->jit_wanted && now - names->jit_looked_ns >= JIT_PERIOD_NS)
		jit_look(names, now);
}

static int symbol_feed(struct session *session, struct target *target, uint64_t address,
		       const struct symbols_frame *frames, uint32_t count, int slow)
{
	struct symbols_binary binary;
	const struct modules *modules;
	bool found = false;
	size_t turn = 0;

	while (count && !found && (modules = modules_next(&target->symbols, &turn)))
		found = symbols_binary(modules, address, &binary);
	return session_feed_symbol(session, target, address, frames, count, found ? &binary : NULL,
				   slow);
}

/*
 * A wait for names. shared: other processes may lose events meanwhile; last: other processes have
 * the rest of a time after which there is none.
 */
struct naming {
	struct names_end end;
	uint64_t began_ns;
	int shared, last, hurried;
};

static uint64_t names_worker_ns(const struct session *session)
{
	return session->symbols ? symbols_worker_ns(session->symbols) : 0;
}

static struct names_end names_end_in(const struct session *session, uint64_t ns)
{
	return (struct names_end){names_worker_ns(session) + ns,
				  clock_ns(CLOCK_MONOTONIC) + WALL_TIMES * ns};
}

static uint64_t half_way(uint64_t from, uint64_t to)
{
	return to > from ? from + (to - from) / 2 : to;
}

/* The moment at which half of the time until an end is used. */
static struct names_end names_end_half(const struct session *session, const struct names_end *end)
{
	return (struct names_end){half_way(names_worker_ns(session), end->worker_ns),
				  half_way(clock_ns(CLOCK_MONOTONIC), end->wall_ns)};
}

static bool names_end_is_past(const struct session *session, const struct names_end *end)
{
	return clock_ns(CLOCK_MONOTONIC) >= end->wall_ns ||
	       names_worker_ns(session) >= end->worker_ns;
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
	naming.shared = !time->ends && session_targets_running(session) > 1;
	naming.last = time->ends && session->count > 1;
	if (time->ends)
		naming.end = time->end;
	else
		naming.end = names_end_in(session, naming.shared ? time->left_ns : END_NS);
	/* Half is left to the next process, whose files may be faster to read. */
	if (naming.shared || naming.last)
		naming.end = names_end_half(session, &naming.end);
	return naming;
}

static void naming_end(struct session *session, const struct naming *naming, int late)
{
	struct names_time *time = &session->names_time;
	uint64_t waited_ns = clock_ns(CLOCK_MONOTONIC) - naming->began_ns;

	if (naming->shared)
		time->left_ns -= waited_ns < time->left_ns ? waited_ns : time->left_ns;
	/* The next process must not wait for an answer that comes too late for this one. */
	if (naming->last && late)
		symbols_abandon(session->symbols);
}

/*
 * The user has asked for the end: shorten the wait. A process that the same Ctrl-C has ended still
 * gets some time for its names; a second Ctrl-C while the session ends leaves none.
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
static int share_need(struct target_symbols *names)
{
	return names->share ? 0 : symbols_share_new(&names->share, TARGET_SHARE_NS);
}

/* Waits for the frames of an address. Their number; 0; -EAGAIN, -ETIME, -ENOMEM. */
static int address_wait(struct session *session, const struct target_symbols *names,
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

static int address_plain(struct session *session, const struct target_symbols *names,
			 uint64_t address, struct symbols_frame *frame)
{
	const struct modules *modules;
	size_t turn = 0;
	int count = 0;

	while (!count && (modules = modules_next(names, &turn)))
		count = symbols_resolve_plain(session->symbols, modules, address, frame);
	return count;
}

static int address_name(struct session *session, struct target *target, uint64_t address,
			struct naming *naming)
{
	struct symbols_frame frames[SYMBOLS_FRAMES_MAX];
	int count = address_wait(session, &target->symbols, address, naming, frames);
	int slow = count == -EAGAIN || count == -ETIME;

	target->symbols.late |= count == -EAGAIN;

	if (slow)
		count = address_plain(session, &target->symbols, address, frames);
	/* Without memory for its name it stays an address, and is not looked up again. */
	if (account_is_full(count))
		count = 0;
	return count < 0 ? count
			 : symbol_feed(session, target, address, frames, (uint32_t)count, slow);
}

int target_symbols_name(struct session *session, struct target *target)
{
	struct target_symbols *names = &target->symbols;
	struct naming naming;
	uint64_t address;
	int err;

	/* The trace may have reused the index of a target that has ended. */
	if ((!names->count && !names->reported) || target->ended)
		return 0;
	target_symbols_watch(session, target, clock_ns(CLOCK_MONOTONIC));
	if (names->jit_wanted && target->pidfd >= 0)
		jit_look(names, clock_ns(CLOCK_MONOTONIC));
	err = share_need(names);
	if (err)
		return err;
	if (names->late) {
		names->late = 0;
		names->named = 0;
	}
	naming = naming_begin(session);
	while (!err && trace_unnamed_next(session->trace, target->index, &names->named, &address))
		err = address_name(session, target, address, &naming);
	naming_end(session, &naming, names->late);
	return err;
}

void session_name(struct session *session)
{
	for (size_t i = 0; i < session->count; i++) {
		int err = target_symbols_name(session, session->targets[i]);

		if (err)
			log_info("PID %d: some native frames have no names: %s",
				 session->targets[i]->pid, error_reason(err));
	}
}

/* Looks up the new addresses of a target. 0; -EAGAIN: the worker is busy, the rest is for later. */
static int target_prepare(struct session *session, struct target *target, uint64_t until_ns)
{
	struct target_symbols *names = &target->symbols;
	struct symbols_ask ask = {.until_ns = until_ns};
	const struct modules *modules;
	uint64_t address;

	if (target->ended || (!names->count && !names->reported) || share_need(names))
		return 0;
	ask.share = names->share;
	for (size_t next = names->prepared;
	     trace_unnamed_next(session->trace, target->index, &next, &address);
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

/* 0; -EAGAIN: not all are looked up. */
static int names_prepare(struct session *session, uint64_t until_ns)
{
	struct names_time *time = &session->names_time;
	int err = 0;

	/* Round-robin: a target with many or slow names does not delay the others. */
	for (size_t i = 0; !err && session->symbols && i < session->count; i++)
		err = target_prepare(session, session->targets[time->turn++ % session->count],
				     until_ns);
	return err;
}

void session_names_prepare(struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC), end = now + PREPARE_NS;

	/* Stacks wait for an unwind table, names do not hurry. */
	while (now < end && names_prepare(session, now + PREPARE_SLICE_NS) &&
	       !attach_unwind_is_wanted(session->attach))
		now = clock_ns(CLOCK_MONOTONIC);
}

void session_names_end(struct session *session, int hurried)
{
	session->names_time.ends = 1;
	session->names_time.end = names_end_in(session, hurried ? HURRY_NS : END_NS);
}
