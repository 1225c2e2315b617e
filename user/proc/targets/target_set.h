/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The targets of a session, and which processes match them, now or as they appear.
 *
 *   pids        those processes; with containers: their pids within the container
 *   containers  all processes in one of them (container.h)
 *   cgroups     all processes in one of them, or below (cgroup.h)
 *   pods        all processes in a running container of root's runtimes that has one of these
 *               namespaces, pods, labels, annotations of Kubernetes (four kinds)
 *   names       all processes with one of these names
 *   all         every process
 * Targets of the same kind are alternatives; different kinds must all match: containers and names
 * select the processes of those names in those containers. Threads, kernel threads, zombies and the
 * tracer itself are not targets.
 *
 * A name is matched against the whole process name (comm, as pgrep -x does), with the wildcards of
 * fnmatch(3). The kernel keeps 15 bytes of a process name, so only the first 15 bytes of a longer
 * name without wildcards are compared.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/container/cgroup.h"
#include "proc/container/container.h"
#include "proc/process.h"

struct target_container {
	const char *text;          /* as the user typed it */
	struct container *entries; /* its current match */
	size_t count;
};

struct target_cgroup {
	const char *text;
	struct cgroup_ref ref;
};

/* What is asked of a container: its pod's namespace and name, labels, annotations. */
enum target_pod {
	TARGET_NAMESPACE,
	TARGET_POD,
	TARGET_LABEL, /* from here on the kinds of container_is_tagged() */
	TARGET_ANNOTATION,
	TARGET_PODS
};

struct target_pods {
	const char **texts;
	size_t count, capacity;
};

struct target_set {
	pid_t *pids;
	size_t pid_count;
	struct target_container *containers;
	size_t container_count, container_capacity;
	struct target_cgroup *cgroups;
	size_t cgroup_count, cgroup_capacity;
	struct target_pods pods[TARGET_PODS];
	struct target_container in_pods; /* the containers that these select now */
	const char **names;
	size_t name_count, name_capacity;
	int all;
	int wait; /* containers that do not exist yet are awaited, and may come back */
	/* hashes of cgroups in which no container was found, for target_set_match() */
	uint64_t cgroups_seen[64];
};

/*
 * A zeroed set is empty. Texts are borrowed until target_set_free(), which also frees pids. 0,
 * -ENOMEM.
 */
int target_set_container(struct target_set *set, const char *text);
int target_set_cgroup(struct target_set *set, const char *text);
int target_set_name(struct target_set *set, const char *text);
/*
 * A namespace or pod may have the wildcards of fnmatch(3). A label or annotation is KEY or
 * KEY=VALUE, whose value may have them. Also -EINVAL: it has no key.
 */
int target_set_pod(struct target_set *set, enum target_pod kind, const char *text);
bool target_set_has_pods(const struct target_set *set);
void target_set_free(struct target_set *set);

bool target_set_is_empty(const struct target_set *set);
/*
 * Are the processes named one by one? If so, each that cannot be traced is an error; otherwise it
 * is skipped.
 */
bool target_set_is_pids(const struct target_set *set);
/* Is every process a target? */
bool target_set_is_all(const struct target_set *set);

/*
 * Resolves the cgroups and containers. Call it once, before the functions below. 0; -ENOENT,
 * -EEXIST and others with a reason, and *what is the text at fault. With wait a missing container
 * is not an error.
 */
int target_set_resolve(struct target_set *set, const char **what);
/*
 * Is this process a target? 1, 0, -ENOMEM. Also for a process that has just forked or exec'd. With
 * wait or pods, a new cgroup is looked up, as it may belong to a container that has started. info
 * comes from process_info_read().
 */
int target_set_match(struct target_set *set, const struct process_info *info);
/* The same for a process that has ended, by its comm. 1; 0; -ESRCH: the comm does not tell. */
int target_set_match_name(const struct target_set *set, const char *name);
/*
 * Lists the current targets in ascending order, including those in awaited containers that have
 * appeared. The caller frees *pids. Pids that were requested without a container are listed even if
 * they do not exist. 0; -ESRCH a pid is not in the container; -errno.
 */
int target_set_list(struct target_set *set, pid_t **pids, size_t *count);
/* Is an awaited container still missing: this one, any? */
bool target_set_is_awaited(const struct target_set *set, const struct target_container *container);
bool target_set_is_waiting(const struct target_set *set);
/*
 * May processes come to match that are not children of matching ones? Never for pids; for
 * containers while one of them runs or is awaited; otherwise always.
 */
bool target_set_may_grow(const struct target_set *set);

/*
 * Explains a pid that may have been meant as a pid within a container: "PID 12 is PID 4711 here, in
 * container web-1". Looks for processes with this pid in a PID namespace below ours. Returns 1 and
 * the text; 0 if there is nothing to explain.
 */
int target_pid_explain(pid_t pid, char *out, size_t capacity);
/*
 * Explains why processes may be missing from our view of /proc (hidepid). Returns 1 and the text,
 * or 0.
 */
int target_hidden_explain(char *out, size_t capacity);
