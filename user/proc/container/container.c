/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the list of containers in three steps: scan every process, read the runtimes' state (which
 * names the ids that were found and adds containers that do not run), and find the cgroup of each
 * container.
 */
#include "proc/container/container.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/container/container_list.h"
#include "proc/container/state_file.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"

/* The owner of what is read about containers. */

bool container_owner_is(const struct container_owner *a, const struct container_owner *b)
{
	return a->uid == b->uid && !strcmp(a->inside, b->inside);
}

/* The inode of its PID namespace; 0: unavailable. */
static uint64_t container_pid_namespace(pid_t pid)
{
	struct stat st;
	char name[40];

	snprintf(name, sizeof(name), "/proc/%d/ns/pid", pid);
	return stat(name, &st) ? 0 : st.st_ino;
}

static void inside_set(const struct container_list *list, const char *id,
		       struct container_owner *out)
{
	if (strcmp(id, list->own) != 0)
		strcpy(out->inside, id);
}

/*
 * A program with set-uid or set-gid bits can be started by any user under any name, so its user's
 * identity proves nothing.
 */
static int lends_rights(const struct process_info *info)
{
	struct statx st;
	char name[40];

	/* What the kernel knows already: the file system may not answer. */
	snprintf(name, sizeof(name), "/proc/%d/exe", info->pid);
	return info->uids_differ || statx(AT_FDCWD, name, AT_STATX_DONT_SYNC, STATX_MODE, &st) ||
	       st.stx_mode & (S_ISUID | S_ISGID);
}

/* Is it our PID namespace, or that of PID 1, which has all processes that we see? */
static bool is_our_namespace(pid_t pid)
{
	uint64_t namespace = container_pid_namespace(pid);

	return namespace && (namespace == container_pid_namespace(getpid()) ||
			     namespace == container_pid_namespace(1));
}

int container_owner_of_process(const struct container_list *list, const struct process_info *info,
			       const char *cgroup_text, struct container_owner *out)
{
	struct cgroup_container in;

	*out = (struct container_owner){.uid = info->uid};
	if (lends_rights(info))
		return 0;
	if (cgroup_container_find(cgroup_text, &in, NULL))
		inside_set(list, in.id, out);
	/*
	 * Root in another PID namespace is in a container too, though not in one of a runtime that
	 * we know.
	 */
	return out->uid || out->inside[0] || is_our_namespace(info->pid);
}

void container_owner_of_cgroup(const struct container_list *list, const struct cgroup_line *line,
			       size_t path_bytes, struct container_owner *out)
{
	const char *slash = memrchr(line->path, '/', path_bytes);
	struct cgroup_container in;

	*out = (struct container_owner){0};
	if (cgroup_maker(&list->mounts, line, path_bytes, &out->uid))
		out->uid = 0;
	if (slash && cgroup_container_parse(line->path, (size_t)(slash - line->path), &in))
		inside_set(list, in.id, out);
}

bool container_directory_is_owned(const struct container_list *list, int directory)
{
	struct stat st;

	return !fstat(directory, &st) && st.st_uid == list->current_owner.uid &&
	       !(st.st_mode & S_IWOTH);
}

/*
 * Limits how much of the runtimes' state is read. A user can fill a directory, or link one large
 * file into it many times, so each runtime has a share and all runtimes together have a limit.
 */

#define SHARE_BYTES (32u << 20) /* state of one daemon or monitor */
#define TOTAL_BYTES (64u << 20)

void container_state_begin(struct container_list *list)
{
	list->share_bytes = 0;
}

int container_state_read(struct container_list *list, int directory, const char *path, size_t max,
			 json_t **out)
{
	size_t share = SHARE_BYTES - list->share_bytes, total = TOTAL_BYTES - list->state_bytes,
	       bytes = 0;
	size_t left = share < total ? share : total;
	int err = left ? state_json_read(directory, path, max < left ? max : left, &bytes, out)
		       : -EFBIG;

	/*
	 * A file that is refused after it was read has cost the same, and opening a file has a cost
	 * too.
	 */
	bytes += STATE_FILE_COST;
	bytes = bytes < left ? bytes : left;
	list->share_bytes += bytes;
	list->state_bytes += bytes;
	if (err == -EFBIG && !list->state_refused++)
		container_list_caveat(
			list, "state files of a runtime beyond the size limit are left out");
	return err;
}

struct monitors {
	struct container_pids docker, podman, containerd;
};

bool container_id_is_valid(const char *id)
{
	size_t bytes =
		strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.-");

	return bytes && !id[bytes] && bytes < CONTAINER_ID_SIZE && id[0] != '.' && id[0] != '-';
}

void container_text_set(char *out, size_t capacity, const char *text)
{
	snprintf(out, capacity, "%.*s", (int)capacity - 1, text);
}

void container_list_caveat(struct container_list *list, const char *format, ...)
{
	size_t length = strlen(list->caveat);
	va_list arguments;

	if (length && length + 2 < sizeof(list->caveat)) {
		strcpy(list->caveat + length, "; ");
		length += 2;
	}
	va_start(arguments, format);
	vsnprintf(list->caveat + length, sizeof(list->caveat) - length, format, arguments);
	va_end(arguments);
}

/* Only containerd's ids need the namespace to be unique. */
static int entry_matches(const struct container_list *list, const struct container *entry,
			 const char *id, const char *namespace)
{
	return !strcmp(entry->id, id) && container_owner_is(&entry->owner, &list->current_owner) &&
	       (!entry->namespace[0] || !namespace[0] || !strcmp(entry->namespace, namespace));
}

struct container *container_list_find(struct container_list *list, const char *id,
				      const char *namespace)
{
	for (size_t i = 0; i < list->count; i++) {
		struct container *entry = &list->entries[i];

		if (entry_matches(list, entry, id, namespace))
			return entry;
	}
	return NULL;
}

/* Do the processes of a cgroup show that a container with this id belongs to another owner? */
static bool is_seen_elsewhere(const struct container_list *list, const char *id)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->entries[i].cgroup.path && !strcmp(list->entries[i].id, id) &&
		    !container_owner_is(&list->entries[i].owner, &list->current_owner))
			return 1;
	return 0;
}

static bool is_monitor(const struct process_info *info)
{
	return !strncmp(info->name, "containerd-shim", 15) || !strncmp(info->name, "conmon", 6);
}

/* Is a process's parent a monitor that belongs to the current owner? */
static int parent_fits(const struct container_list *list, const struct process_info *info)
{
	struct container_owner owner;
	struct process_info parent;
	_cleanup_(buffer_free) struct buffer text = {0};
	int fits = info->ppid && !process_info_read(info->ppid, &parent) && is_monitor(&parent) &&
		   !process_file_read(info->ppid, "cgroup", CGROUP_TEXT_MAX, &text) &&
		   container_owner_of_process(list, &parent, (const char *)text.data, &owner) &&
		   container_owner_is(&owner, &list->current_owner);

	return fits;
}

/*
 * Finds the cgroup of a process that is named after the id, if the current owner can have made it.
 */
static int cgroup_fits(const struct container_list *list, const char *text, const char *id,
		       struct cgroup_line *line, size_t *bytes)
{
	struct container_owner owner;

	if (!cgroup_id_find(text, id, line, bytes))
		return 0;
	container_owner_of_cgroup(list, line, *bytes, &owner);
	return container_owner_is(&owner, &list->current_owner);
}

/*
 * A pid read from a file may have been reused, or may be of another PID namespace: its cgroup or
 * its parent must match the container.
 */
static bool init_is_plausible(const struct container_list *list, const struct container *entry,
			      pid_t pid)
{
	struct process_info info;
	_cleanup_(buffer_free) struct buffer text = {0};
	struct cgroup_line line;
	size_t bytes;
	int fits;

	if (process_info_read(pid, &info) || info.zombie ||
	    process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text))
		fits = 0;
	else if (entry->cgroup.path)
		fits = cgroup_ref_holds(&entry->cgroup, (const char *)text.data);
	else
		fits = cgroup_fits(list, (const char *)text.data, entry->id, &line, &bytes) ||
		       (!is_seen_elsewhere(list, entry->id) && parent_fits(list, &info));
	return fits;
}

static void text_fill(char *out, size_t capacity, const char *text)
{
	if (!out[0])
		container_text_set(out, capacity, text);
}

/* Appends an entry for this owner. 0, with *out NULL if the list is full; -ENOMEM. */
static int entry_new(struct container_list *list, const char *id,
		     const struct container_owner *owner, struct container **out)
{
	*out = NULL;
	if (list->count == CONTAINERS_MAX) {
		if (!strstr(list->caveat, "are left out"))
			container_list_caveat(list, "containers beyond %d are left out",
					      CONTAINERS_MAX);
		return 0;
	}
	int err = ARRAY_GROW(list->entries, list->capacity, list->count);
	if (err)
		return err;
	*out = &list->entries[list->count++];
	**out = (struct container){.owner = *owner};
	container_text_set((*out)->id, sizeof((*out)->id), id);
	return 0;
}

static void entry_fill(struct container_list *list, struct container *entry,
		       const struct container *container)
{
	if (!entry->runtime)
		entry->runtime = container->runtime;
	text_fill(entry->namespace, sizeof(entry->namespace), container->namespace);
	text_fill(entry->name, sizeof(entry->name), container->name);
	text_fill(entry->pod, sizeof(entry->pod), container->pod);
	text_fill(entry->pod_namespace, sizeof(entry->pod_namespace), container->pod_namespace);
	entry->sandbox |= container->sandbox;
	if (container->init_pid && container->init_pid != entry->init_pid &&
	    init_is_plausible(list, entry, container->init_pid))
		entry->init_pid = container->init_pid;
}

/*
 * Two cgroups with the same id are two containers: both entries are filled, and neither is
 * preferred.
 */
int container_list_add(struct container_list *list, const struct container *container)
{
	struct container *entry;
	int found = 0, err = 0;

	for (size_t i = 0; i < list->count; i++) {
		entry = &list->entries[i];
		if (!entry_matches(list, entry, container->id, container->namespace))
			continue;
		entry_fill(list, entry, container);
		found = 1;
	}
	if (!found)
		err = entry_new(list, container->id, &list->current_owner, &entry);
	if (!found && !err && entry)
		entry_fill(list, entry, container);
	return err;
}

int container_list_tag(struct container_list *list, const struct container *container,
		       const json_t *labels, const json_t *annotations)
{
	int err = 0;

	for (size_t i = 0; i < list->count && !err; i++) {
		struct container *entry = &list->entries[i];

		if (!entry->tags.size &&
		    entry_matches(list, entry, container->id, container->namespace))
			err = container_kubernetes_tags(labels, annotations, &entry->tags);
	}
	return err;
}

static struct container *member_find(const struct container_list *list,
				     const struct cgroup_container *found,
				     const struct cgroup_line *line)
{
	for (size_t i = 0; i < list->count; i++) {
		struct container *entry = &list->entries[i];

		if (!strcmp(entry->id, found->id) && entry->cgroup.path &&
		    strlen(entry->cgroup.path) == found->path_bytes &&
		    !memcmp(entry->cgroup.path, line->path, found->path_bytes))
			return entry;
	}
	return NULL;
}

/* Records that a process runs in a container, and that it may be the container's init. */
static int member_add(struct container_list *list, const struct process_info *info,
		      const char *cgroup_text)
{
	struct cgroup_container found;
	struct container_owner owner;
	struct cgroup_line line;
	int err = 0;

	if (!cgroup_container_find(cgroup_text, &found, &line))
		return 0;
	struct container *entry = member_find(list, &found, &line);
	if (!entry) {
		container_owner_of_cgroup(list, &line, found.path_bytes, &owner);
		err = entry_new(list, found.id, &owner, &entry);
		if (!err && entry)
			err = cgroup_ref_set(&entry->cgroup, &line, found.path_bytes);
		if (err || !entry)
			return err;
		entry->runtime = found.runtime;
	}
	if (!entry->init_pid || (info->ns_pid == 1 && !entry->init_is_first))
		entry->init_pid = info->pid;
	entry->init_is_first |= info->ns_pid == 1;
	return 0;
}

static struct container_pids *monitors_of(struct monitors *monitors,
					  const struct process_info *info)
{
	if (!strcmp(info->name, "dockerd"))
		return &monitors->docker;
	if (!is_monitor(info))
		return NULL;
	return info->name[3] == 't' ? &monitors->containerd : &monitors->podman;
}

static int monitor_add(struct container_pids *monitors, const struct container_pid *monitor)
{
	int err = ARRAY_GROW(monitors->items, monitors->capacity, monitors->count);

	if (!err)
		monitors->items[monitors->count++] = *monitor;
	return err;
}

static int process_scan(struct container_list *list, struct monitors *monitors, pid_t pid,
			struct buffer *text)
{
	struct container_pid monitor = {.pid = pid};
	struct process_info info;
	int err = 0;

	if (process_info_read(pid, &info) || info.kernel_thread || info.zombie ||
	    process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, text))
		return 0;
	struct container_pids *kind = monitors_of(monitors, &info);
	if (kind &&
	    container_owner_of_process(list, &info, (const char *)text->data, &monitor.owner))
		err = monitor_add(kind, &monitor);
	return err ?: member_add(list, &info, (const char *)text->data);
}

static int processes_scan(struct container_list *list, struct monitors *monitors)
{
	struct buffer text = {0};
	pid_t *pids;
	size_t count;
	int err = process_list(&pids, &count);

	if (err)
		return error_set(err, "/proc cannot be read");
	for (size_t i = 0; i < count && !err; i++)
		err = process_scan(list, monitors, pids[i], &text);
	buffer_free(&text);
	free(pids);
	return err;
}

/*
 * Finds what identifies a container's processes: its own cgroup or, failing that, its own PID
 * namespace.
 */
static int bounds_find(struct container_list *list, struct container *container)
{
	struct buffer text = {0};
	struct cgroup_line line;
	size_t bytes;

	if (container->cgroup.path)
		return 0;
	list->current_owner = container->owner;
	int err = process_file_read(container->init_pid, "cgroup", CGROUP_TEXT_MAX, &text);
	if (!err && cgroup_fits(list, (const char *)text.data, container->id, &line, &bytes)) {
		err = cgroup_ref_set(&container->cgroup, &line, bytes);
	} else {
		uint64_t own = container_pid_namespace(getpid());

		container->pid_namespace = container_pid_namespace(container->init_pid);
		if (container->pid_namespace == own)
			container->pid_namespace = 0;
	}
	buffer_free(&text);
	if (err && err != -ENOMEM) { /* it has ended meanwhile */
		container->init_pid = 0;
		return 0;
	}
	return err;
}

/* Finds the container that we run in and the cgroup mounts; both are optional. */
static int own_read(struct container_list *list)
{
	struct cgroup_container in;
	struct buffer text = {0};
	int err = process_file_read(getpid(), "cgroup", CGROUP_TEXT_MAX, &text);

	if (!err && cgroup_container_find((const char *)text.data, &in, NULL))
		strcpy(list->own, in.id);
	buffer_free(&text);
	if (err != -ENOMEM)
		err = cgroup_mounts_read(&list->mounts);
	return err == -ENOMEM ? err : 0;
}

int container_list_read(struct container_list *out)
{
	struct container_list list = {0};
	struct monitors monitors = {0};

	error_clear();
	int err = own_read(&list)
		  ?: processes_scan(&list, &monitors)
		  ?: container_docker_read(&list, &monitors.docker)
		  ?: container_podman_read(&list, &monitors.podman)
		  ?: container_containerd_read(&list, &monitors.containerd)
		  ?: container_kubernetes_read(&list);
	for (size_t i = 0; i < list.count && !err; i++)
		if (list.entries[i].init_pid)
			err = bounds_find(&list, &list.entries[i]);
	free(monitors.docker.items);
	free(monitors.podman.items);
	free(monitors.containerd.items);
	buffer_free(&list.mounts);
	list.mounts = (struct buffer){0};
	if (err)
		container_list_free(&list);
	else
		*out = list;
	return err;
}

void container_list_free(struct container_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		cgroup_ref_free(&list->entries[i].cgroup);
		buffer_free(&list->entries[i].tags);
	}
	free(list->entries);
	buffer_free(&list->mounts);
	*list = (struct container_list){0};
}

int container_holds(const struct container *container, pid_t pid, const char *cgroup_text)
{
	if (container->cgroup.path)
		return cgroup_ref_holds(&container->cgroup, cgroup_text);
	if (container->pid_namespace)
		return container_pid_namespace(pid) == container->pid_namespace;
	return container->init_pid == pid;
}

const struct container *container_of(const struct container_list *list, pid_t pid)
{
	const struct container *found = NULL;
	_cleanup_(buffer_free) struct buffer text = {0};

	if (process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text))
		return NULL;
	for (size_t i = 0; i < list->count; i++) {
		const struct container *here = &list->entries[i];

		if (!here->init_pid || !container_holds(here, pid, (const char *)text.data))
			continue;
		if (!found || !found->cgroup.path ||
		    (here->cgroup.path && strlen(here->cgroup.path) > strlen(found->cgroup.path)))
			found = here;
	}
	return found;
}
