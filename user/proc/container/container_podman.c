/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Podman and CRI-O: both keep containers in a storage directory, with an index of names in
 * DRIVER-containers/containers.json (volatile-containers.json: containers that are removed when
 * they end), and a container's annotations in DRIVER-containers/ID/userdata/config.json. Each
 * container has a monitor, conmon, whose arguments give id, name and bundle. The bundle is in that
 * storage, so any user's storage is found while one of its containers runs.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proc/container/container_list.h"
#include "proc/container/state_file.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/descriptor.h"

#define STORAGE "/var/lib/containers/storage"
/* entries of all indexes; each is looked up among the known containers */
#define INDEXED_MAX     (4 * CONTAINERS_MAX)
#define ARGUMENTS_BYTES (128u * 1024)
#define PODMAN_PATH     1024

static int index_take(struct container_list *list, const json_t *entry)
{
	struct container found = {0};
	const char *id = state_text(entry, "id");
	const char *name = json_string_value(json_array_get(json_object_get(entry, "names"), 0));

	if (!container_id_is_valid(id) || list->indexed == INDEXED_MAX)
		return 0;
	if (++list->indexed == INDEXED_MAX)
		container_list_caveat(list, "Podman's indexes are read only up to %d entries",
				      INDEXED_MAX);
	container_text_set(found.id, sizeof(found.id), id);
	found.runtime = name && container_kubernetes_name(name, &found) ? CONTAINER_RUNTIME_CRIO
									: CONTAINER_RUNTIME_PODMAN;
	if (!found.pod[0])
		container_text_set(found.name, sizeof(found.name), name ?: "");
	return container_list_add(list, &found);
}

int container_podman_index(struct container_list *list, const json_t *index)
{
	int err = 0;

	for (size_t i = 0; !err && i < json_array_size(index); i++)
		err = index_take(list, json_array_get(index, i));
	return err;
}

/*
 * The annotations of a container that runs, or of a sandbox, which may have no process. Those of
 * other containers are not needed.
 */
static int config_take(struct container_list *list, int containers, const json_t *entry)
{
	struct container found = {0};
	char path[CONTAINER_ID_SIZE + 32];
	const char *id = state_text(entry, "id");
	const struct container *known =
		container_id_is_valid(id) ? container_list_find(list, id, "") : NULL;
	json_t *config;

	if (!known || (!known->init_pid && !known->sandbox))
		return 0;
	snprintf(path, sizeof(path), "%s/userdata/config.json", id);
	if (container_state_read(list, containers, path, CONTAINER_CONFIG_BYTES, &config))
		return 0;
	const json_t *annotations = json_object_get(config, "annotations");
	container_text_set(found.id, sizeof(found.id), id);
	container_kubernetes_annotations(annotations, &found);
	int err = container_list_add(list, &found)
			  ?: container_list_tag(list, &found, NULL, annotations);
	json_decref(config);
	return err;
}

static int driver_take(void *context, int directory, const char *name)
{
	static const char ending[] = "-containers";
	static const char *const files[] = {"containers.json", "volatile-containers.json"};
	size_t bytes = strlen(name);
	char path[NAME_MAX + 32];
	json_t *index;
	int owner, err = 0;

	if (bytes < sizeof(ending) || strcmp(name + bytes - (sizeof(ending) - 1), ending))
		return 0;
	owner = state_dir_below(directory, name);
	for (size_t i = 0; owner >= 0 && !err && i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "%s/%s", name, files[i]);
		if (!container_directory_is_owned(context, owner) ||
		    container_state_read(context, directory, path, CONTAINER_INDEX_BYTES, &index))
			continue;
		err = container_podman_index(context, index);
		for (size_t k = 0; !err && k < json_array_size(index); k++)
			err = config_take(context, owner, json_array_get(index, k));
		json_decref(index);
	}
	descriptor_close(owner);
	return err;
}

int container_podman_storage(struct container_list *list, int storage)
{
	return state_dir_each(storage, driver_take, list);
}

/* STORAGE/DRIVER-containers/ID/userdata: strip three components. */
static void storage_of(const char *bundle, char *out, size_t capacity)
{
	out[0] = '\0';
	if (bundle[0] != '/' || strlen(bundle) >= capacity)
		return;
	strcpy(out, bundle);
	for (int i = 0; i < 3; i++) {
		char *slash = strrchr(out, '/');
		if (!slash || slash == out) {
			out[0] = '\0';
			return;
		}
		*slash = '\0';
	}
}

int container_conmon_parse(const char *arguments, size_t bytes, struct container *out,
			   char *pid_file, char *storage, size_t capacity)
{
	const char *end = arguments + bytes;
	const char *id = "", *name = "", *bundle = "", *file = "";

	for (const char *at = arguments; at < end; at += strlen(at) + 1) {
		const char *next = at + strlen(at) + 1;

		if (next >= end)
			break;
		if (!strcmp(at, "-c") || !strcmp(at, "--cid"))
			id = next;
		else if (!strcmp(at, "-n") || !strcmp(at, "--name"))
			name = next;
		else if (!strcmp(at, "-b") || !strcmp(at, "--bundle"))
			bundle = next;
		else if (!strcmp(at, "-p") || !strcmp(at, "--container-pidfile"))
			file = next;
		else if (strcmp(at, "--exit-command-arg") && strcmp(at, "--runtime-arg"))
			continue;
		at = next; /* a value is not an option, whatever it looks like */
	}
	if (!container_id_is_valid(id) || strlen(file) >= capacity)
		return -EINVAL;
	container_text_set(out->id, sizeof(out->id), id);
	out->runtime = container_kubernetes_name(name, out) ? CONTAINER_RUNTIME_CRIO
							    : CONTAINER_RUNTIME_PODMAN;
	if (!out->pod[0])
		container_text_set(out->name, sizeof(out->name), name);
	strcpy(pid_file, file);
	storage_of(bundle, storage, capacity);
	return 0;
}

/* Reads the process id from a file, whose path is relative to the monitor's root; 0: none. */
static pid_t pid_file_read(pid_t monitor, char *path)
{
	char *slash = strrchr(path, '/');
	pid_t pid = 0;

	if (!slash || slash == path)
		return 0;
	*slash = '\0';
	int directory = state_dir_open(monitor, path);
	if (directory >= 0) {
		pid = state_pid_read(directory, slash + 1);
		close(directory);
	}
	return pid;
}

static int storage_read(struct container_list *list, pid_t pid, const char *path)
{
	_cleanup_close_ int storage = path[0] ? state_dir_open(pid, path) : -ENOENT;

	container_state_begin(list);
	if (storage < 0)
		return 0;
	int err = container_podman_storage(list, storage);
	return err == -ENOMEM ? err : 0;
}

static int monitor_read(struct container_list *list, pid_t monitor)
{
	struct container found = {0};
	char pid_file[PODMAN_PATH], storage[PODMAN_PATH];
	_cleanup_(buffer_free) struct buffer text = {0};
	const struct container *known;
	int err = 0;

	if (!process_file_read(monitor, "cmdline", ARGUMENTS_BYTES, &text) &&
	    !container_conmon_parse((const char *)text.data, text.size, &found, pid_file, storage,
				    PODMAN_PATH)) {
		found.init_pid = pid_file_read(monitor, pid_file);
		/*
		 * "podman rename" updates the storage, not the monitor's arguments: read the
		 * storage first, and once.
		 */
		known = container_list_find(list, found.id, "");
		if (!known || !known->name[0])
			err = storage_read(list, monitor, storage);
		err = err ?: container_list_add(list, &found);
	}
	return err;
}

int container_podman_read(struct container_list *list, const struct container_pids *monitors)
{
	int err = storage_read(list, 0, STORAGE);

	for (size_t i = 0; i < monitors->count && !err; i++) {
		list->current_owner = monitors->items[i].owner;
		err = monitor_read(list, monitors->items[i].pid);
	}
	list->current_owner = (struct container_owner){0};
	return err;
}
