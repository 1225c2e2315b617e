/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd, and the runtimes on top of it (Docker: namespace "moby"; Kubernetes: "k8s.io";
 * nerdctl). A container's bundle is STATE/io.containerd.runtime.v2.task/NAMESPACE/ID. It holds
 * config.json, as passed to the OCI runtime, and init.pid. The shim's working directory is the
 * bundle of the container for which it was started; the other containers of a pod have sibling
 * directories.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proc/container/container_list.h"
#include "proc/container/state_file.h"
#include "util/cleanup.h"

#define TASKS            "/run/containerd/io.containerd.runtime.v2.task"
#define DOCKER_NAMESPACE "moby"

struct namespace_walk {
	struct container_list *list;
	const char *namespace;
};

int container_containerd_parse(const json_t *config, struct container *out)
{
	const json_t *annotations = json_object_get(config, "annotations");

	if (!json_is_object(config))
		return -EBADMSG;
	container_text_set(out->name, sizeof(out->name), state_text(annotations, "nerdctl/name"));
	container_kubernetes_annotations(annotations, out);
	return 0;
}

static int bundle_take(void *context, int directory, const char *name)
{
	const struct namespace_walk *walk = context;
	struct container found = {.runtime = CONTAINER_RUNTIME_CONTAINERD};
	_cleanup_close_ int bundle =
		container_id_is_valid(name) ? state_dir_below(directory, name) : -EINVAL;
	json_t *config = NULL;

	if (bundle < 0)
		return 0;
	container_text_set(found.id, sizeof(found.id), name);
	container_text_set(found.namespace, sizeof(found.namespace), walk->namespace);
	found.init_pid = state_pid_read(bundle, "init.pid");
	if (!strcmp(walk->namespace, DOCKER_NAMESPACE)) {
		found.runtime = CONTAINER_RUNTIME_DOCKER;
	} else if (!container_state_read(walk->list, bundle, "config.json", CONTAINER_CONFIG_BYTES,
					 &config)) {
		container_containerd_parse(config, &found);
		if (!found.name[0])
			container_text_set(found.name, sizeof(found.name), name);
	}
	int err = container_list_add(walk->list, &found)
			  ?: container_list_tag(walk->list, &found, NULL,
						json_object_get(config, "annotations"));
	json_decref(config);
	return err;
}

static int namespace_read(void *context, int directory, const char *name)
{
	struct namespace_walk walk = {.list = context, .namespace = name};
	_cleanup_close_ int namespace = state_dir_below(directory, name);

	if (namespace < 0)
		return 0;
	int err = container_directory_is_owned(context, namespace)
			  ? state_dir_each(namespace, bundle_take, &walk)
			  : 0;
	return err == -ENOMEM ? err : 0;
}

int container_containerd_tasks(struct container_list *list, int tasks)
{
	container_state_begin(list);
	int err = state_dir_each(tasks, namespace_read, list);

	return err == -ENOMEM ? err : 0;
}

/*
 * Reads the task directory, two levels above the shim's bundle. The files in it show whether it is
 * one.
 */
static int shim_read(struct container_list *list, pid_t shim)
{
	char name[40];

	snprintf(name, sizeof(name), "/proc/%d/cwd/../..", shim);
	_cleanup_close_ int tasks = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tasks < 0)
		return 0;
	return container_containerd_tasks(list, tasks);
}

/*
 * Most shims share their state directory: if the container is known by its bundle, the directory
 * has been read.
 */
static bool shim_is_known(struct container_list *list, pid_t shim)
{
	char name[40], bundle[4096];

	snprintf(name, sizeof(name), "/proc/%d/cwd", shim);
	ssize_t bytes = readlink(name, bundle, sizeof(bundle) - 1);
	if (bytes <= 0)
		return 1;
	bundle[bytes] = '\0';
	char *slash = strrchr(bundle, '/');
	const struct container *known = slash ? container_list_find(list, slash + 1, "") : NULL;
	return known && known->namespace[0];
}

int container_containerd_read(struct container_list *list, const struct container_pids *shims)
{
	int tasks = state_dir_open(0, TASKS), err = 0;

	if (tasks >= 0) {
		err = container_containerd_tasks(list, tasks);
		close(tasks);
	}
	for (size_t i = 0; i < shims->count && !err; i++) {
		list->current_owner = shims->items[i].owner;
		if (!shim_is_known(list, shims->items[i].pid))
			err = shim_read(list, shims->items[i].pid);
	}
	list->current_owner = (struct container_owner){0};
	return err;
}
