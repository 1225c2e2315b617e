/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/options/targets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cmd/options/options.h"
#include "proc/family.h"
#include "proc/patience.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/interrupt.h"

/* --- late targets ----------------------------------------------------------------------------- */

#define LOOK_NS 20000000ull

/*
 * Starts to wait for a process, and says so. 0; -ENOMEM. Zero-initialise the struct;
 * late_targets_free() releases it.
 */
static int late_targets_add(struct late_targets *targets, pid_t pid)
{
	struct late *items = realloc(targets->items, (targets->count + 1) * sizeof(*items));

	if (!items)
		return -ENOMEM;
	targets->items = items;
	items[targets->count++] = (struct late){.pid = pid};
	log_info("PID %d: no Python in it yet; waiting for it to load one", (int)pid);
	return 0;
}

int late_attach(struct session *session, pid_t pid)
{
	int err = session_add(session, pid, 0);

	if (!err)
		log_info("PID %d has loaded Python while it ran: its blocks from before now are "
			 "older than the trace",
			 (int)pid);
	return err;
}

/*
 * Checks the processes, at most every 20 ms, and attaches to those that have loaded Python. A
 * process that has ended or cannot be traced is reported and removed. Returns the number of
 * processes attached to.
 */
static size_t late_targets_look(struct late_targets *targets, struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	size_t kept = 0, attached = 0;

	if (!targets->count || now - targets->looked_ns < LOOK_NS)
		return 0;
	targets->looked_ns = now;
	for (size_t i = 0; i < targets->count; i++) {
		struct late *late = &targets->items[i];

		/* A session that follows processes may have attached first. */
		if (session_has(session, late->pid)) {
			attached++;
			continue;
		}
		int found = late_look(late, NULL), err = found;

		if (!found) {
			targets->items[kept++] = *late;
			continue;
		}
		if (found > 0)
			err = late_attach(session, late->pid);
		attached += !err;
		if (err == -ESRCH)
			error_print(error_set(-ESRCH, "it has ended, and had loaded no Python"),
				    NULL, "PID %d", (int)late->pid);
		else if (err)
			error_print(err, cli_remedy(err), "PID %d", (int)late->pid);
	}
	targets->count = kept;
	return attached;
}

static void late_targets_give_up(struct late_targets *targets)
{
	for (size_t i = 0; i < targets->count; i++)
		error_print(error_set(-ENOENT, "it has loaded no Python while it was waited for"),
			    NULL, "PID %d", (int)targets->items[i].pid);
	targets->count = 0;
}

/* Prints an error for each process that is still waited for. */
static void late_targets_free(struct late_targets *targets)
{
	free(targets->items);
}

/* --- targets ---------------------------------------------------------------------------------- */

/*
 * between two searches for a container that has not started, or SEARCH_SHARE times as long as a
 * search takes
 */
#define SEARCH_NS    100000000ull
#define SEARCH_SHARE 20

/* Prints why a name of the set could not be resolved, and the remedy. */
static int resolve_error_print(const struct target_set *set, int err, const char *what,
			       const char *missing)
{
	const char *remedy = cli_remedy(err);

	for (size_t i = 0; i < set->cgroup_count; i++)
		if (set->cgroups[i].text == what)
			return error_print(err,
					   "give a directory below /sys/fs/cgroup, or a path of "
					   "/proc/PID/cgroup",
					   "--cgroup %s", what);
	if (err == -EEXIST)
		remedy = "give its full name, or its ID";
	else if (err == -ENOENT)
		remedy = geteuid() ? "run it with sudo: not all processes are visible" : missing;
	return error_print(err, remedy, "container %s", what);
}

int targets_list(struct target_set *set, const char *missing, pid_t **pids, size_t *count)
{
	const char *what;
	int err = target_set_resolve(set, &what);

	if (err)
		return resolve_error_print(set, err, what, missing);
	err = target_set_list(set, pids, count);
	if (err == -ESRCH)
		return error_print(err, "-p with -c is a process id as seen in the container",
				   "--pid");
	return err ? error_print(err, NULL, "trace") : 0;
}

/*
 * If our namespace has no such process, or no Python in it, an id of another PID namespace is
 * explained.
 */
void pid_error_print(pid_t pid, int err)
{
	char reason[256], why[160], text[224];

	err = patience_explain(pid, err);
	if (err != -ESRCH && err != -ENOENT) {
		error_print(err, cli_remedy(err), "PID %d", pid);
		return;
	}
	/* the search below may overwrite the reason */
	snprintf(reason, sizeof(reason), "%s", error_reason(err));
	if (target_pid_explain(pid, why, sizeof(why)))
		snprintf(text, sizeof(text),
			 "%d is the process id, in its own PID namespace, of %s", pid, why);
	else if (err == -ESRCH && target_hidden_explain(why, sizeof(why)))
		snprintf(text, sizeof(text),
			 "%s, which hides other users' processes: run it with sudo", why);
	else
		snprintf(text, sizeof(text), "%s", cli_remedy(err));
	error_print(error_set(err, "%s", reason), text, "PID %d", pid);
}

void target_error_print(const struct target_set *set, pid_t pid, int err)
{
	err = patience_explain(pid, err);
	/* Nobody has named a process that only the kernel's rules hide, such as PID 1. */
	bool nobody = target_set_is_all(set) && (err == -EPERM || err == -EACCES);

	if (target_set_is_pids(set) && !set->container_count)
		pid_error_print(pid, err);
	else if (target_set_is_pids(set) || (err != -ENOENT && err != -ESRCH && !nobody))
		error_print(err, cli_remedy(err), "PID %d", pid);
	else
		log_debug("PID %d is skipped: %s", pid, error_reason(err));
}

/* Sets the reason why none of the `count` matching processes is traced, for error_reason(). */
static void none_reason(size_t count)
{
	char why[160];
	int hidden = target_hidden_explain(why, sizeof(why));

	if (count)
		error_set(-ESRCH, "of %zu process%s that match%s none can be traced", count,
			  count == 1 ? "" : "es", count == 1 ? "es" : "");
	else
		error_set(-ESRCH, "no process matches%s%s", hidden ? ", but " : "",
			  hidden ? why : "");
}

int targets_none_print(const struct target_set *set, size_t count)
{
	if (target_set_is_pids(set))
		return -ESRCH;
	none_reason(count);
	return error_print(
		-ESRCH,
		count ? "tracer list shows which run a Python that is known; of others --layer "
			"native traces malloc"
		      : "tracer list shows what can be traced",
		"trace");
}

/* The text "14282,14283"; an end that does not fit is "…". */
static void pids_text(char *text, size_t bytes, const pid_t *pids, size_t count)
{
	size_t at = 0;

	text[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		if (at + sizeof(",4194304,…") > bytes) {
			snprintf(text + at, bytes - at, ",…");
			return;
		}
		at += (size_t)snprintf(text + at, bytes - at, "%s%d", at ? "," : "", (int)pids[i]);
	}
}

void targets_workers_print(const pid_t *pids, size_t count, struct session *session,
			   const char *done, int several)
{
	char text[256], first[32];

	for (size_t i = 0; i < count; i++) {
		pid_t *workers;
		size_t all, left = 0;

		if (family_list(pids[i], &workers, &all))
			continue;
		for (size_t j = 0; j < all; j++)
			if (!pids_have(pids, count, workers[j]) &&
			    !(session && session_has(session, workers[j])))
				workers[left++] = workers[j];
		pids_text(text, sizeof(text), workers, left);
		free(workers);
		if (!left)
			continue;
		snprintf(first, sizeof(first), "-p %d,", (int)pids[i]);
		log_info("PID %d has %zu worker%s that run%s the same program, not %s: %s%s",
			 (int)pids[i], left, left == 1 ? "" : "s", left == 1 ? "s" : "", done,
			 several ? first : "PID ", text);
	}
}

static bool is_seen(const struct targets *targets, pid_t pid)
{
	for (size_t i = 0; i < targets->seen_count; i++)
		if (targets->seen[i] == pid)
			return 1;
	return 0;
}

static int target_add(struct targets *targets, struct session *session, pid_t pid)
{
	int err = ARRAY_GROW(targets->seen, targets->seen_capacity, targets->seen_count);

	if (err)
		return error_print(err, NULL, "trace");
	targets->seen[targets->seen_count++] = pid;
	err = session_add(session, pid, 0);
	if (!err)
		targets->attached++;
	else if (err == -ENOENT && targets->set->wait &&
		 (target_set_is_pids(targets->set) || targets->set->container_count))
		return late_targets_add(&targets->late, pid);
	/* One process that cannot be traced does not keep the others from being traced. */
	else if (!targets->set->all || err != -ENOTSUP || targets->refused++ < SESSION_LOGS)
		target_error_print(targets->set, pid, err);
	else
		log_debug("PID %d is not traced: %s", pid, error_reason(err));
	return 0;
}

static int targets_add(struct targets *targets, struct session *session, const pid_t *pids,
		       size_t count)
{
	int err = 0, stop = 0;

	/* A signal during the attach does not wait for the remaining processes. */
	for (size_t i = 0; i < count && !err && !stop && !interrupt_pending(); i++) {
		if (is_seen(targets, pids[i]))
			continue;
		err = target_add(targets, session, pids[i]);
		stop = targets->between && targets->between(targets->between_context);
	}
	return err;
}

int targets_attach(struct targets *targets, struct session *session)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	size_t count;
	pid_t *pids;
	int err = targets_list(targets->set, "--wait waits for it", &pids, &count);

	if (err)
		return err;
	err = session_expect(session, pids, count);
	if (err)
		error_print(err, NULL, "trace");
	else
		err = targets_add(targets, session, pids, count);
	free(pids);
	if (err)
		return err;
	if (targets->refused > SESSION_LOGS)
		log_info("%zu more are not traced; -v lists them", targets->refused - SESSION_LOGS);
	size_t resting = session_resting(session);
	if (resting)
		log_info("%zu process%s traced once %s enough CPU time (--after-cpu)", resting,
			 resting == 1 ? " is" : "es are",
			 resting == 1 ? "it has used" : "each has used");
	else if (count > SESSION_LOGS)
		log_info("attached to %zu of %zu processes in %llu ms; -v lists them",
			 targets->attached, count,
			 (unsigned long long)((clock_ns(CLOCK_MONOTONIC) - start) / 1000000));
	for (size_t i = 0; i < targets->set->container_count; i++)
		if (target_set_is_awaited(targets->set, &targets->set->containers[i]))
			log_info("waiting for container %s", targets->set->containers[i].text);
	if (targets->attached && target_set_is_pids(targets->set))
		targets_workers_print(targets->seen, targets->seen_count, session, "traced", 1);
	if (targets->attached || targets_waiting(targets) || interrupt_pending())
		return 0;
	targets->open = targets->follows && target_set_may_grow(targets->set);
	if (!targets->open)
		return targets_none_print(targets->set, count);
	none_reason(count);
	log_info("%s so far; waiting for one to start", error_reason(-ESRCH));
	return 0;
}

/* A container that has not started, or that has and runs no Python yet. */
static bool is_looking(const struct targets *targets)
{
	return target_set_is_waiting(targets->set) ||
	       (targets->set->wait && targets->set->container_count && !targets->attached);
}

int targets_waiting(const struct targets *targets)
{
	return targets->late.count || is_looking(targets);
}

int targets_look(struct targets *targets, struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	size_t count;
	pid_t *pids;

	targets->attached += late_targets_look(&targets->late, session);
	if (!is_looking(targets) || now - targets->looked_ns < targets->pause_ns)
		return 0;
	int err = target_set_list(targets->set, &pids, &count);
	if (err)
		return error_print(err, NULL, "waiting for a container");
	err = targets_add(targets, session, pids, count);
	free(pids);
	targets->looked_ns = clock_ns(CLOCK_MONOTONIC);
	targets->pause_ns = (targets->looked_ns - now) * SEARCH_SHARE;
	if (targets->pause_ns < SEARCH_NS)
		targets->pause_ns = SEARCH_NS;
	return err;
}

void targets_give_up(struct targets *targets, size_t traced, size_t ended)
{
	if (targets->open && !traced && ended)
		error_print(error_set(-ESRCH, "each matching process ended before it was traced"),
			    "tracer -- COMMAND traces from the first instruction", "trace");
	else if (targets->open && !traced)
		error_print(error_set(-ESRCH,
				      "no matching process has started while it was waited for"),
			    "tracer list shows what can be traced", "trace");
	for (size_t i = 0; i < targets->set->container_count; i++)
		if (target_set_is_awaited(targets->set, &targets->set->containers[i]))
			error_print(error_set(-ENOENT, "it has not started while it was waited "
						       "for"),
				    NULL, "container %s", targets->set->containers[i].text);
	late_targets_give_up(&targets->late);
}

void targets_free(struct targets *targets)
{
	late_targets_free(&targets->late);
	free(targets->seen);
}
