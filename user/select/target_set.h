/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session is asked to trace, and which processes that is: now, or as they appear.
 *
 *   pids			those processes; with containers: their process ids as seen in there
 *   containers			all that is in one of them (container.h)
 *   cgroups			all that is in one of them, or below (cgroup.h)
 *   names			all with one of these names
 *   all			everything
 * Of the same kind any will do, of different kinds each must hold: containers and names are the
 * processes of those names in those containers. Threads are no targets, nor are kernel threads,
 * zombies and we ourselves.
 *
 * A name is held against the whole name of the process (comm, as pgrep -x does), with the wildcards
 * of fnmatch(3). The kernel keeps 15 bytes of a process's name: of a longer one without wildcards
 * those are compared.
 */
#ifndef TRACER_SELECT_TARGET_SET_H
#define TRACER_SELECT_TARGET_SET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "container/cgroup.h"
#include "container/container.h"
#include "process/process.h"

struct target_container {
	const char *text;          /* as the user typed it */
	struct container *entries; /* what it means now */
	size_t count;
};

struct target_cgroup {
	const char *text;
	struct cgroup_ref ref;
};

struct target_set {
	pid_t *pids;
	size_t pid_count;
	struct target_container *containers;
	size_t container_count, container_room;
	struct target_cgroup *cgroups;
	size_t cgroup_count, cgroup_room;
	const char **names;
	size_t name_count, name_room;
	int all;
	int wait; /* containers that are not there yet will come, and may come again */
	uint64_t looked
		/* hashes of cgroups in which none of the containers was, for target_set_match() */
		[64];
};

/*
 * The texts are borrowed until target_set_free(). A zeroed set is empty. 0, -ENOMEM. pids: *pids is
 * taken over.
 */
void target_set_pids(struct target_set *set, pid_t *pids, size_t count);
int target_set_container(struct target_set *set, const char *text);
int target_set_cgroup(struct target_set *set, const char *text);
int target_set_name(struct target_set *set, const char *text);
void target_set_free(struct target_set *set);

int target_set_is_empty(const struct target_set *set);
/*
 * Are they named one by one? Then each that cannot be traced is worth an error; otherwise it is one
 * of many.
 */
int target_set_is_pids(const struct target_set *set);
/* Is every process a target? */
int target_set_is_all(const struct target_set *set);

/*
 * Finds the cgroups and containers: once, before the functions below. 0; -ENOENT, -EEXIST and
 * others with a reason, and *what is the text that is wrong. With wait a container that is not
 * there is no error.
 */
int target_set_resolve(struct target_set *set, const char **what);
/*
 * Is this process a target? 1, 0, -ENOMEM. For a process that has just been seen to fork or exec,
 * too; with wait a new cgroup may be that of a container that is waited for, and is looked up. info
 * is process_info_read()'s of it.
 */
int target_set_match(struct target_set *set, const struct process_info *info);
/*
 * The targets that there are now, containers that are waited for among them if they have come, in
 * the order of their ids; caller frees *pids. pids that were asked for outside a container are
 * listed whether they are there or not. 0; -ESRCH a pid that is not in the container; -errno.
 */
int target_set_list(struct target_set *set, pid_t **pids, size_t *count);
/* Has a container that is waited for not been seen yet: this one, any? */
int target_set_is_awaited(const struct target_set *set, const struct target_container *container);
int target_set_is_waiting(const struct target_set *set);
/*
 * May processes come to match that are not children of those which do? Of process ids none, of
 * containers while one of them runs or is waited for, of everything else at any time.
 */
int target_set_may_grow(const struct target_set *set);

/*
 * Where a process id of a container was meant: "PID 12 is PID 4711 here, in container web-1". Looks
 * for processes that have this id in a PID namespace below ours. 1 and the text; 0 nothing to
 * explain.
 */
int target_pid_explain(pid_t pid, char *out, size_t room);
/* Why processes may be missing from /proc as we see it (hidepid). 1 and the text, or 0. */
int target_hidden_explain(char *out, size_t room);

#endif
