/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/targets/target_set.h"

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/array.h"
#include "util/error.h"
#include "util/hash.h"

#define COMM_BYTES 15 /* length of a process name in the kernel */

int target_set_container(struct target_set *set, const char *text)
{
	int err = ARRAY_GROW(set->containers, set->container_capacity, set->container_count);

	if (!err)
		set->containers[set->container_count++] = (struct target_container){.text = text};
	return err;
}

int target_set_cgroup(struct target_set *set, const char *text)
{
	int err = ARRAY_GROW(set->cgroups, set->cgroup_capacity, set->cgroup_count);

	if (!err)
		set->cgroups[set->cgroup_count++] = (struct target_cgroup){.text = text};
	return err;
}

int target_set_name(struct target_set *set, const char *text)
{
	int err = ARRAY_GROW(set->names, set->name_capacity, set->name_count);

	if (!err)
		set->names[set->name_count++] = text;
	return err;
}

int target_set_pod(struct target_set *set, enum target_pod kind, const char *text)
{
	struct target_pods *pods = &set->pods[kind];

	if (!text[0] || (kind >= TARGET_LABEL && text[0] == '='))
		return error_set(-EINVAL, "it has no key");
	int err = ARRAY_GROW(pods->texts, pods->capacity, pods->count);
	if (!err)
		pods->texts[pods->count++] = text;
	return err;
}

bool target_set_has_pods(const struct target_set *set)
{
	for (int kind = 0; kind < TARGET_PODS; kind++)
		if (set->pods[kind].count)
			return true;
	return false;
}

static void container_clear(struct target_container *container)
{
	for (size_t i = 0; i < container->count; i++)
		cgroup_ref_free(&container->entries[i].cgroup);
	free(container->entries);
	container->entries = NULL;
	container->count = 0;
}

void target_set_free(struct target_set *set)
{
	for (size_t i = 0; i < set->container_count; i++)
		container_clear(&set->containers[i]);
	for (size_t i = 0; i < set->cgroup_count; i++)
		cgroup_ref_free(&set->cgroups[i].ref);
	container_clear(&set->in_pods);
	for (int kind = 0; kind < TARGET_PODS; kind++)
		free(set->pods[kind].texts);
	free(set->containers);
	free(set->cgroups);
	free(set->names);
	free(set->pids);
	*set = (struct target_set){0};
}

bool target_set_is_empty(const struct target_set *set)
{
	return !set->pid_count && !set->container_count && !set->cgroup_count && !set->name_count &&
	       !target_set_has_pods(set) && !set->all;
}

bool target_set_is_all(const struct target_set *set)
{
	return set->all && !set->pid_count && !set->container_count && !set->cgroup_count &&
	       !set->name_count && !target_set_has_pods(set);
}

bool target_set_may_grow(const struct target_set *set)
{
	if (!set->container_count)
		return !target_set_is_pids(set) && !target_set_is_empty(set);
	for (size_t i = 0; i < set->container_count; i++)
		for (size_t k = 0; k < set->containers[i].count; k++)
			if (!kill(set->containers[i].entries[k].init_pid, 0) || errno == EPERM)
				return 1;
	return set->wait;
}

bool target_set_is_pids(const struct target_set *set)
{
	return set->pid_count > 0;
}

bool target_set_is_awaited(const struct target_set *set, const struct target_container *container)
{
	return set->wait && !container->count;
}

bool target_set_is_waiting(const struct target_set *set)
{
	for (size_t i = 0; i < set->container_count; i++)
		if (target_set_is_awaited(set, &set->containers[i]))
			return 1;
	return 0;
}

/* The set outlives the list, so the chosen containers are copied with their cgroups. */
static int container_copy(struct target_container *container, struct container_list *list,
			  const struct container_choice *choice)
{
	struct container *entries = calloc(choice->count, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	container_clear(container);
	for (size_t i = 0; i < choice->count; i++) {
		struct container *from = &list->entries[choice->entries[i] - list->entries];

		entries[i] = *from;
		entries[i].cgroup = (struct cgroup_ref){0};
		entries[i].tags = (struct buffer){0};
		if (from->cgroup.path) {
			const struct cgroup_line line = {
				.controllers = from->cgroup.controllers,
				.controllers_bytes = strlen(from->cgroup.controllers),
				.path = from->cgroup.path,
			};
			int err = cgroup_ref_set(&entries[i].cgroup, &line,
						 strlen(from->cgroup.path));

			if (err) {
				container->entries = entries;
				container->count = i;
				container_clear(container);
				return err;
			}
			cgroup_ref_identify(&entries[i].cgroup);
		}
	}
	container->entries = entries;
	container->count = choice->count;
	return 0;
}

static int container_resolve(struct target_set *set, struct target_container *container,
			     struct container_list *list)
{
	struct container_choice choice;
	char label[CONTAINER_LABEL_SIZE];
	/* A user who waits for "web-1" does not mean "web-10", which happens to run. */
	int err = container_choose(list, container->text, set->wait, &choice);

	if (err)
		return err == -ENOENT && set->wait ? 0 : err;
	/* A container that was resolved before is not replaced by one of another user. */
	if (container->count &&
	    !container_owner_is(&container->entries[0].owner, &choice.entries[0]->owner)) {
		free(choice.entries);
		return error_set(-EEXIST, "a container of another user has taken its name");
	}
	if (!choice.exact && !container->count)
		log_info("container %s: %s", container->text,
			 container_label(choice.entries[0], label));
	err = container_copy(container, list, &choice);
	free(choice.entries);
	return err;
}

/* Is a container what each of the kinds asks for that ask for anything? */
static bool pod_matches(const struct target_set *set, const struct container_list *list,
			const struct container *container)
{
	const char *names[] = {
		[TARGET_NAMESPACE] = container->pod_namespace, [TARGET_POD] = container->pod};

	for (int kind = 0; kind < TARGET_PODS; kind++) {
		const struct target_pods *pods = &set->pods[kind];
		bool matches = !pods->count;

		for (size_t i = 0; i < pods->count && !matches; i++)
			matches =
				kind < TARGET_LABEL
					? names[kind][0] && !fnmatch(pods->texts[i], names[kind], 0)
					: container_is_tagged(list, container, kind - TARGET_LABEL,
							      pods->texts[i]);
		if (!matches)
			return false;
	}
	return true;
}

/* What a runtime says of a container stays while it runs, even if it cannot be read for a while. */
static bool was_in_pods(const struct target_set *set, const struct container *container)
{
	for (size_t i = 0; i < set->in_pods.count; i++)
		if (!strcmp(set->in_pods.entries[i].id, container->id))
			return true;
	return false;
}

/* Other users can name their containers' pods as they like. */
static int pods_resolve(struct target_set *set, struct container_list *list)
{
	struct container_choice choice = {.entries =
						  calloc(list->count + 1, sizeof(*choice.entries))};

	if (!choice.entries)
		return -ENOMEM;
	for (size_t i = 0; i < list->count; i++) {
		const struct container *each = &list->entries[i];

		if (each->init_pid && !each->owner.uid &&
		    (pod_matches(set, list, each) || was_in_pods(set, each)))
			choice.entries[choice.count++] = each;
	}
	int err = container_copy(&set->in_pods, list, &choice);
	free(choice.entries);
	return err;
}

static int containers_resolve(struct target_set *set, const char **what)
{
	struct container_list list;
	bool pods = target_set_has_pods(set);

	if (!set->container_count && !pods)
		return 0;
	*what = set->container_count ? set->containers[0].text : "pods";
	int err = container_list_read(&list);
	if (err)
		return err;
	if (pods)
		err = pods_resolve(set, &list);
	for (size_t i = 0; i < set->container_count && !err; i++) {
		*what = set->containers[i].text;
		err = container_resolve(set, &set->containers[i], &list);
	}
	container_list_free(&list);
	return err;
}

int target_set_resolve(struct target_set *set, const char **what)
{
	for (size_t i = 0; i < set->cgroup_count; i++) {
		int err = cgroup_ref_open(&set->cgroups[i].ref, set->cgroups[i].text);

		if (err) {
			*what = set->cgroups[i].text;
			return err;
		}
	}
	return containers_resolve(set, what);
}

static int name_matches(const struct target_set *set, const char *name)
{
	for (size_t i = 0; i < set->name_count; i++) {
		const char *wanted = set->names[i];

		if (!fnmatch(wanted, name, 0))
			return 1;
		if (strlen(wanted) > COMM_BYTES && !strpbrk(wanted, "*?[\\") &&
		    strlen(name) == COMM_BYTES && !strncmp(wanted, name, COMM_BYTES))
			return 1;
	}
	return !set->name_count;
}

int target_set_match_name(const struct target_set *set, const char *name)
{
	if (!name_matches(set, name))
		return 0;
	return set->cgroup_count || set->container_count || set->pid_count ||
			       target_set_has_pods(set)
		       ? -ESRCH
		       : 1;
}

static int cgroup_matches(const struct target_set *set, const char *text)
{
	for (size_t i = 0; i < set->cgroup_count; i++)
		if (cgroup_ref_holds(&set->cgroups[i].ref, text))
			return 1;
	return !set->cgroup_count;
}

static const struct container *entry_of(const struct target_container *container, pid_t pid,
					const char *text)
{
	for (size_t i = 0; i < container->count; i++)
		if (container_holds(&container->entries[i], pid, text))
			return &container->entries[i];
	return NULL;
}

static const struct container *container_matches(const struct target_set *set, pid_t pid,
						 const char *text)
{
	const struct container *found = NULL;

	for (size_t i = 0; i < set->container_count && !found; i++)
		found = entry_of(&set->containers[i], pid, text);
	return found;
}

/*
 * The process id within a container. The namespace level is that of the container's first process.
 */
static pid_t pid_within(const struct process_info *info, const struct container *container)
{
	struct process_info init;

	if (process_info_read(container->init_pid, &init) || !init.ns_count ||
	    init.ns_count > info->ns_count)
		return 0;
	return info->ns_pids[init.ns_count - 1];
}

static bool pid_is_wanted(const struct target_set *set, pid_t pid)
{
	for (size_t i = 0; i < set->pid_count; i++)
		if (set->pids[i] == pid)
			return 1;
	return !set->pid_count;
}

/* The conditions that do not need the cgroup file. */
static int info_matches(const struct target_set *set, const struct process_info *info)
{
	if (info->kernel_thread || info->zombie || info->pid == getpid() || info->tgid != info->pid)
		return 0;
	if (!set->container_count && !pid_is_wanted(set, info->pid))
		return 0;
	return !target_set_is_empty(set) && name_matches(set, info->name);
}

static int cgroups_match(const struct target_set *set, const struct process_info *info,
			 const char *text)
{
	if (!cgroup_matches(set, text))
		return 0;
	if (target_set_has_pods(set) && !entry_of(&set->in_pods, info->pid, text))
		return 0;
	if (!set->container_count)
		return 1;
	const struct container *container = container_matches(set, info->pid, text);
	return container && (!set->pid_count || pid_is_wanted(set, pid_within(info, container)));
}

/*
 * A cgroup that was not seen lately may be that of an awaited container, or of one of a pod.
 * Returns 1 and remembers it; 0 if it is known.
 */
static bool cgroup_is_new(struct target_set *set, const char *text)
{
	uint64_t hash = 0;

	for (const char *at = text; *at; at++)
		hash = hash_u64(hash ^ (unsigned char)*at);
	hash |= 1; /* 0 is a free slot */
	if (set->cgroups_seen[hash >> 58] == hash)
		return 0;
	set->cgroups_seen[hash >> 58] = hash;
	return 1;
}

/* Pods' containers have cgroups that name them. */
static bool may_be_in_pod(const struct target_set *set, const char *text)
{
	struct cgroup_container in;

	return target_set_has_pods(set) && cgroup_container_find(text, &in, NULL);
}

/* may_resolve: read the list of containers again for a process in a new cgroup. */
static int process_matches(struct target_set *set, const struct process_info *info, int may_resolve)
{
	struct buffer text = {0};
	const char *what;
	int matches = 0, err = 0;

	if (!info_matches(set, info))
		return 0;
	if (!set->container_count && !set->cgroup_count && !target_set_has_pods(set))
		return 1;
	if (!process_file_read(info->pid, "cgroup", CGROUP_TEXT_MAX, &text)) {
		matches = cgroups_match(set, info, (const char *)text.data);
		if (!matches && (may_resolve || may_be_in_pod(set, (const char *)text.data)) &&
		    cgroup_is_new(set, (const char *)text.data)) {
			err = containers_resolve(set, &what);
			matches = cgroups_match(set, info, (const char *)text.data);
		}
	}
	buffer_free(&text);
	/*
	 * An ambiguous name keeps its old meaning: at this point there is no user to report it to.
	 */
	return err == -ENOMEM ? err : matches;
}

int target_set_match(struct target_set *set, const struct process_info *info)
{
	return process_matches(set, info, set->wait && set->container_count);
}

static int plain_pids(const struct target_set *set, pid_t **pids, size_t *count)
{
	*pids = calloc(set->pid_count, sizeof(**pids));
	if (!*pids)
		return -ENOMEM;
	memcpy(*pids, set->pids, set->pid_count * sizeof(**pids));
	*count = set->pid_count;
	return 0;
}

int target_set_list(struct target_set *set, pid_t **pids, size_t *count)
{
	struct process_info info;
	size_t kept = 0, all;
	const char *what;
	pid_t *list;

	error_clear();
	if (set->pid_count && !set->container_count)
		return plain_pids(set, pids, count);
	int err = target_set_is_waiting(set) ? containers_resolve(set, &what) : 0;
	if (err)
		return err;
	err = process_list(&list, &all);
	if (err)
		return error_set(err, "/proc cannot be read");
	for (size_t i = 0; i < all && !err; i++) {
		int matches =
			process_info_read(list[i], &info) ? 0 : process_matches(set, &info, 0);

		if (matches > 0)
			list[kept++] = list[i];
		else
			err = matches;
	}
	/* Each id must match one process in each selected container. */
	if (!err && set->pid_count > kept && !target_set_is_waiting(set))
		err = error_set(-ESRCH, "%zu of these process ids %s not in the container",
				set->pid_count - kept, set->pid_count - kept == 1 ? "is" : "are");
	if (err) {
		free(list);
		return err;
	}
	*pids = list;
	*count = kept;
	return 0;
}

/* Explains why a pid that the user named is not found, or is another process than intended. */

#define EXPLAINED 3 /* candidates that are named */

static bool has_below(const struct process_info *info, pid_t pid)
{
	for (unsigned int i = 1; i < info->ns_count; i++)
		if (info->ns_pids[i] == pid)
			return 1;
	return 0;
}

int target_pid_explain(pid_t pid, char *out, size_t capacity)
{
	struct container_list list = {0};
	struct process_info info;
	size_t count, found = 0, length = 0;
	pid_t *pids;

	if (process_list(&pids, &count))
		return 0;
	for (size_t i = 0; i < count; i++) {
		char label[CONTAINER_LABEL_SIZE];

		if (process_info_read(pids[i], &info) || !has_below(&info, pid) ||
		    found++ >= EXPLAINED)
			continue;
		if (!list.entries)
			container_list_read(&list);
		const struct container *container = container_of(&list, pids[i]);
		length += (size_t)snprintf(
			out + length, capacity - length, "%sPID %d %s%.60s", length ? ", " : "",
			pids[i], container ? "in container " : "in a PID namespace of its own",
			container ? container_label(container, label) : "");
		if (length >= capacity)
			length = capacity - 1;
	}
	if (found > EXPLAINED)
		snprintf(out + length, capacity - length, " and %zu more", found - EXPLAINED);
	container_list_free(&list);
	free(pids);
	return found > 0;
}

int target_hidden_explain(char *out, size_t capacity)
{
	struct buffer text = {0};
	int found = 0;

	/*
	 * Matches "… /proc rw,… - proc proc rw,hidepid=invisible". If several mounts are stacked on
	 * /proc, the last one is visible.
	 */
	if (geteuid() && !process_file_read(getpid(), "mountinfo", 1u << 20, &text)) {
		const char *at = (const char *)text.data;
		while ((at = strstr(at, " /proc "))) {
			size_t line = strcspn(at, "\n");
			const char *option = memmem(at, line, "hidepid=", 8);

			found = option && strncmp(option + 8, "0", 1) != 0 &&
				strncmp(option + 8, "off", 3) != 0;
			if (found)
				snprintf(out, capacity, "/proc is mounted with %.*s",
					 (int)strcspn(option, ",\n "), option);
			at += line;
		}
	}
	buffer_free(&text);
	return found;
}
