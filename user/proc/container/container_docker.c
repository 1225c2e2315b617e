/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Docker: a daemon's containers are in DATA-ROOT/containers/ID/config.v2.json, which is rewritten
 * on every change (also by "docker rename"). DATA-ROOT is taken from each running daemon's command
 * line or configuration file. Without a daemon it is taken from our own configuration file, or is
 * the default.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proc/container/container_list.h"
#include "proc/container/state_file.h"
#include "proc/process.h"
#include "util/cleanup.h"
#include "util/descriptor.h"

#define CONFIG_FILE    "/etc/docker/daemon.json"
#define DATA_ROOT      "/var/lib/docker"
#define ROOTLESS       "/.local/share/docker"
#define SOCKET         "/run/docker.sock"
#define PROC_MAX_BYTES (128u * 1024)
#define DOCKER_PATH    512

struct daemon {
	pid_t pid; /* 0: the default paths, in our root */
	char data_root[DOCKER_PATH], config[DOCKER_PATH], socket[DOCKER_PATH];
};

static const json_t *labels_of(const json_t *config)
{
	return json_object_get(json_object_get(config, "Config"), "Labels");
}

int container_docker_parse(const json_t *config, struct container *out)
{
	const json_t *state = json_object_get(config, "State");
	const char *id = state_text(config, "ID"), *name = state_text(config, "Name");
	json_int_t pid = json_integer_value(json_object_get(state, "Pid"));

	if (!container_id_is_valid(id))
		return -EBADMSG;
	out->runtime = CONTAINER_RUNTIME_DOCKER;
	container_text_set(out->id, sizeof(out->id), id);
	name += *name == '/';
	if (!container_kubernetes_name(name, out))
		container_text_set(out->name, sizeof(out->name), name);
	container_kubernetes_annotations(labels_of(config), out);
	if (json_is_true(json_object_get(state, "Running")) && pid > 0 && pid == (pid_t)pid)
		out->init_pid = (pid_t)pid;
	return 0;
}

static int config_take(void *context, int directory, const char *name)
{
	struct container_list *list = context;
	struct container found = {0};
	char path[CONTAINER_ID_SIZE + 32];
	json_t *config;

	if (!container_id_is_valid(name))
		return 0;
	snprintf(path, sizeof(path), "%s/config.v2.json", name);
	if (container_state_read(list, directory, path, CONTAINER_CONFIG_BYTES, &config))
		return 0; /* being created or removed */
	int err = 0;
	/* A daemon's file describes the container whose directory it is in. Reject any other. */
	if (!container_docker_parse(config, &found) && !strcmp(found.id, name))
		err = container_list_add(list, &found)
			      ?: container_list_tag(list, &found, labels_of(config), NULL);
	json_decref(config);
	return err;
}

int container_docker_root(struct container_list *list, int data_root)
{
	_cleanup_close_ int containers = state_dir_below(data_root, "containers");

	container_state_begin(list);
	if (containers < 0)
		return containers;
	return container_directory_is_owned(list, containers)
		       ? state_dir_each(containers, config_take, list)
		       : -EPERM;
}

static void path_set(char out[DOCKER_PATH], const char *path)
{
	if (path && strlen(path) < DOCKER_PATH)
		snprintf(out, DOCKER_PATH, "%s", path);
}

/*
 * The value of "NAME VALUE" or "NAME=VALUE" at argument; next is the following argument. NULL: it
 * is another option.
 */
static const char *option_value(const char *argument, const char *next, const char *name)
{
	size_t bytes = strlen(name);

	if (strncmp(argument, name, bytes))
		return NULL;
	return argument[bytes] == '=' ? argument + bytes + 1 : argument[bytes] ? NULL : next;
}

static void socket_set(struct daemon *daemon, const char *host)
{
	if (host && !strncmp(host, "unix://", 7))
		path_set(daemon->socket, host + 7);
}

static void arguments_take(struct daemon *daemon, const char *text, size_t bytes)
{
	for (const char *at = text, *end = text + bytes; at < end; at += strlen(at) + 1) {
		const char *next = at + strlen(at) + 1 < end ? at + strlen(at) + 1 : NULL;

		path_set(daemon->data_root, option_value(at, next, "--data-root")
						    ?: option_value(at, next, "-g")
						    ?: option_value(at, next, "--graph"));
		path_set(daemon->config, option_value(at, next, "--config-file"));
		socket_set(daemon,
			   option_value(at, next, "-H") ?: option_value(at, next, "--host"));
	}
}

/* Fills in what the command line does not set. */
static void config_file_take(struct daemon *daemon)
{
	char *slash = strrchr(daemon->config, '/');
	json_t *config;

	if (!slash)
		return;
	*slash = '\0';
	_cleanup_close_ int directory =
		state_dir_open(daemon->pid, daemon->config[0] ? daemon->config : "/");
	if (directory >= 0 &&
	    !state_json_read(directory, slash + 1, CONTAINER_CONFIG_BYTES, NULL, &config)) {
		const json_t *hosts = json_object_get(config, "hosts");

		if (!daemon->data_root[0])
			path_set(daemon->data_root, state_text(config, "data-root"));
		for (size_t i = 0; !daemon->socket[0] && i < json_array_size(hosts); i++)
			socket_set(daemon, json_string_value(json_array_get(hosts, i)));
		json_decref(config);
	}
}

/* A rootless daemon keeps its state in the user's home. */
static void home_take(struct daemon *daemon, const char *text, size_t bytes)
{
	for (const char *at = text; at < text + bytes; at += strlen(at) + 1) {
		if (!strncmp(at, "XDG_DATA_HOME=", 14))
			snprintf(daemon->data_root, DOCKER_PATH, "%.400s/docker", at + 14);
		else if (!strncmp(at, "HOME=", 5) && !daemon->data_root[0])
			snprintf(daemon->data_root, DOCKER_PATH, "%.400s" ROOTLESS, at + 5);
	}
}

static void daemon_locate(struct daemon *daemon, pid_t pid)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	struct process_info info;

	*daemon = (struct daemon){.pid = pid, .config = CONFIG_FILE};
	if (pid && !process_file_read(pid, "cmdline", PROC_MAX_BYTES, &text))
		arguments_take(daemon, (const char *)text.data, text.size);
	config_file_take(daemon);
	if (pid && !daemon->data_root[0] && !process_info_read(pid, &info) && info.uid &&
	    !process_file_read(pid, "environ", PROC_MAX_BYTES, &text))
		home_take(daemon, (const char *)text.data, text.size);
	if (!daemon->data_root[0])
		path_set(daemon->data_root, DATA_ROOT);
	if (!daemon->socket[0])
		path_set(daemon->socket, SOCKET);
}

static int daemon_read(struct container_list *list, pid_t pid)
{
	struct daemon daemon;

	daemon_locate(&daemon, pid);
	int data_root = state_dir_open(pid, daemon.data_root);
	int err = data_root < 0 ? data_root : container_docker_root(list, data_root);
	descriptor_close(data_root);
	if (!err || err == -ENOMEM)
		return err;
	/* The disk does not have it. */
	err = container_docker_ask(list, pid, daemon.socket);
	if (err == -ETIMEDOUT)
		container_list_caveat(list, "Docker's socket %s has not answered within a second",
				      daemon.socket);
	else if (pid && err && err != -ENOMEM)
		container_list_caveat(list,
				      "the state of dockerd (PID %d) in %s cannot be read: %s", pid,
				      daemon.data_root, strerror(-err));
	return err == -ENOMEM ? err : 0;
}

int container_docker_read(struct container_list *list, const struct container_pids *daemons)
{
	int err = 0;

	int of_root = 0;

	for (size_t i = 0; i < daemons->count && !err; i++) {
		list->current_owner = daemons->items[i].owner;
		of_root |= !list->current_owner.uid && !list->current_owner.inside[0];
		err = daemon_read(list, daemons->items[i].pid);
	}
	/* Other users' daemons do not replace root's default. */
	list->current_owner = (struct container_owner){0};
	return of_root || err ? err : daemon_read(list, 0);
}
