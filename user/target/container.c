/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of containers: first a look at every process, then the runtimes' states, which give names to the ids that were found
 * and more containers, at last the cgroup of each.
 */
#include "target/container.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/text.h"
#include "target/container_list.h"
#include "target/process.h"

struct monitors {
	struct container_pids docker, podman, containerd;
};

int container_id_is_valid(const char *id)
{
	size_t bytes = strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.-");

	return bytes && !id[bytes] && bytes < CONTAINER_ID_SIZE && id[0] != '.' && id[0] != '-';
}

void container_text_set(char *out, size_t room, const char *text)
{
	snprintf(out, room, "%.*s", (int)room - 1, text);
}

void container_list_remark(struct container_list *list, const char *format, ...)
{
	size_t length = strlen(list->remark);
	va_list arguments;

	if (length && length + 2 < sizeof(list->remark)) {
		strcpy(list->remark + length, "; ");
		length += 2;
	}
	va_start(arguments, format);
	vsnprintf(list->remark + length, sizeof(list->remark) - length, format, arguments);
	va_end(arguments);
}

struct container *container_list_find(struct container_list *list, const char *id, const char *space)
{
	for (size_t i = 0; i < list->count; i++) {
		struct container *entry = &list->entries[i];

		/* Only containerd's own ids need their namespace to be unique. */
		if (!strcmp(entry->id, id) && (!entry->space[0] || !space[0] || !strcmp(entry->space, space)))
			return entry;
	}
	return NULL;
}

/* A pid of a file may be another process's by now, or one of another PID namespace: its cgroup or its parent must fit. */
static int init_is_plausible(pid_t pid, const char *id)
{
	struct process_info info, parent;
	struct buffer text = {0};
	struct cgroup_line line;
	size_t bytes;
	int fits;

	if (process_info_read(pid, &info) || info.zombie)
		return 0;
	fits = !process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text) &&
	       cgroup_id_find((const char *)text.data, id, &line, &bytes);
	buffer_free(&text);
	if (fits || !info.ppid || process_info_read(info.ppid, &parent))
		return fits;
	return !strncmp(parent.name, "containerd-shim", 15) || !strncmp(parent.name, "conmon", 6);
}

static void text_fill(char *out, size_t room, const char *text)
{
	if (!out[0])
		container_text_set(out, room, text);
}

int container_list_add(struct container_list *list, const struct container *container)
{
	struct container *entry = container_list_find(list, container->id, container->space);
	int err;

	if (!entry) {
		if (list->count == CONTAINERS_MAX) {
			if (!strstr(list->remark, "are left out"))
				container_list_remark(list, "containers beyond %d are left out",
						      CONTAINERS_MAX);
			return 0;
		}
		err = array_reserve(&list->entries, &list->room, list->count, 1, sizeof(*list->entries));
		if (err)
			return err;
		entry = &list->entries[list->count++];
		*entry = (struct container){0};
		container_text_set(entry->id, sizeof(entry->id), container->id);
	}
	if (!entry->runtime)
		entry->runtime = container->runtime;
	text_fill(entry->space, sizeof(entry->space), container->space);
	text_fill(entry->name, sizeof(entry->name), container->name);
	text_fill(entry->pod, sizeof(entry->pod), container->pod);
	text_fill(entry->pod_namespace, sizeof(entry->pod_namespace), container->pod_namespace);
	entry->sandbox |= container->sandbox;
	if (container->init_pid && container->init_pid != entry->init_pid &&
	    init_is_plausible(container->init_pid, container->id))
		entry->init_pid = container->init_pid;
	return 0;
}

static int pid_add(struct container_pids *pids, pid_t pid)
{
	int err = array_reserve(&pids->items, &pids->room, pids->count, 1, sizeof(pid));

	if (!err)
		pids->items[pids->count++] = pid;
	return err;
}

/* A process in a container: that one runs, and this may be its first. */
static int member_add(struct container_list *list, const struct process_info *info, const char *cgroup_text)
{
	struct cgroup_container found;
	struct container container = {0};
	struct container *entry;
	int err;

	if (!cgroup_container_find(cgroup_text, &found, NULL))
		return 0;
	entry = container_list_find(list, found.id, "");
	if (!entry) {
		container.runtime = found.runtime;
		container_text_set(container.id, sizeof(container.id), found.id);
		err = container_list_add(list, &container);
		entry = container_list_find(list, found.id, "");
		if (err || !entry)
			return err;
	}
	if (!entry->init_pid || (info->ns_pid == 1 && !entry->init_is_first))
		entry->init_pid = info->pid;
	entry->init_is_first |= info->ns_pid == 1;
	return 0;
}

static int process_look(struct container_list *list, struct monitors *monitors, pid_t pid,
			struct buffer *text)
{
	struct process_info info;
	int err;

	if (process_info_read(pid, &info) || info.kernel_thread || info.zombie)
		return 0;
	err = 0;
	if (!strcmp(info.name, "dockerd"))
		err = pid_add(&monitors->docker, pid);
	else if (!strncmp(info.name, "containerd-shim", 15))
		err = pid_add(&monitors->containerd, pid);
	else if (!strncmp(info.name, "conmon", 6))
		err = pid_add(&monitors->podman, pid);
	if (!err && !process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, text))
		err = member_add(list, &info, (const char *)text->data);
	return err;
}

static int processes_look(struct container_list *list, struct monitors *monitors)
{
	struct buffer text = {0};
	pid_t *pids;
	size_t count;
	int err = process_list(&pids, &count);

	if (err)
		return error_set(err, "/proc cannot be read");
	for (size_t i = 0; i < count && !err; i++)
		err = process_look(list, monitors, pids[i], &text);
	buffer_free(&text);
	free(pids);
	return err;
}

static uint64_t pid_namespace_of(pid_t pid)
{
	struct stat st;
	char name[40];

	snprintf(name, sizeof(name), "/proc/%d/ns/pid", pid);
	return stat(name, &st) ? 0 : st.st_ino;
}

/* What tells a container's processes: its own cgroup; else, if it has one, its own PID namespace. */
static int bounds_find(struct container *container)
{
	struct buffer text = {0};
	struct cgroup_line line;
	size_t bytes;
	int err = process_file_read(container->init_pid, "cgroup", CGROUP_TEXT_MAX, &text);

	if (!err && cgroup_id_find((const char *)text.data, container->id, &line, &bytes)) {
		err = cgroup_ref_set(&container->cgroup, &line, bytes);
	} else {
		uint64_t own = pid_namespace_of(getpid());

		container->pid_namespace = pid_namespace_of(container->init_pid);
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

int container_list_read(struct container_list *out)
{
	struct container_list list = {0};
	struct monitors monitors = {0};
	int err = processes_look(&list, &monitors);

	if (!err)
		err = container_docker_read(&list, &monitors.docker);
	if (!err)
		err = container_podman_read(&list, &monitors.podman);
	if (!err)
		err = container_containerd_read(&list, &monitors.containerd);
	if (!err)
		err = container_kubernetes_read(&list);
	for (size_t i = 0; i < list.count && !err; i++)
		if (list.entries[i].init_pid)
			err = bounds_find(&list.entries[i]);
	free(monitors.docker.items);
	free(monitors.podman.items);
	free(monitors.containerd.items);
	if (err)
		container_list_free(&list);
	else
		*out = list;
	return err;
}

void container_list_free(struct container_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		cgroup_ref_free(&list->entries[i].cgroup);
	free(list->entries);
	*list = (struct container_list){0};
}

int container_holds(const struct container *container, pid_t pid, const char *cgroup_text)
{
	if (container->cgroup.path)
		return cgroup_ref_holds(&container->cgroup, cgroup_text);
	if (container->pid_namespace)
		return pid_namespace_of(pid) == container->pid_namespace;
	return container->init_pid == pid;
}

const struct container *container_of(const struct container_list *list, pid_t pid)
{
	const struct container *found = NULL;
	struct buffer text = {0};

	if (process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text)) {
		buffer_free(&text);
		return NULL;
	}
	for (size_t i = 0; i < list->count; i++) {
		const struct container *here = &list->entries[i];

		if (!here->init_pid || !container_holds(here, pid, (const char *)text.data))
			continue;
		if (!found || !found->cgroup.path ||
		    (here->cgroup.path && strlen(here->cgroup.path) > strlen(found->cgroup.path)))
			found = here;
	}
	buffer_free(&text);
	return found;
}
