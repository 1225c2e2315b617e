/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal interface between the readers of the runtimes' state. The public interface is
 * container.h.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "proc/container/container.h"
#include "proc/process.h"

#define CONTAINER_CONFIG_BYTES (4u << 20) /* one container's file */
/* a file that lists many containers, or a daemon's answer */
#define CONTAINER_INDEX_BYTES (8u << 20)

/* Processes that lead to a runtime's state, and their owner. */
struct container_pid {
	pid_t pid;
	struct container_owner owner;
};

struct container_pids {
	struct container_pid *items;
	size_t count, capacity;
};

/*
 * The owner that a process which looks like a runtime's speaks for. Returns 1; 0 if the process is
 * not trusted, because its credentials differ from those it was started with, or because it is root
 * in a PID namespace of its own.
 */
int container_owner_of_process(const struct container_list *list, const struct process_info *info,
			       const char *cgroup_text, struct container_owner *out);
/*
 * The owner that can have made a cgroup (the first path_bytes bytes of the line's path). Root if no
 * mount shows it.
 */
void container_owner_of_cgroup(const struct container_list *list, const struct cgroup_line *line,
			       size_t path_bytes, struct container_owner *out);
/* Does a directory belong to the list's current owner, without being world-writable? */
bool container_directory_is_owned(const struct container_list *list, int directory);

/*
 * Merges what is known about a container into the list, under its id and as a statement of
 * list->current_owner. An init_pid that is not in the container is dropped. 0, -ENOMEM.
 */
int container_list_add(struct container_list *list, const struct container *container);
/*
 * Gives the entries that container_list_add() has filled the labels and annotations of a runtime's
 * state, either of which may be NULL. What an entry has already stays. 0, -ENOMEM.
 */
int container_list_tag(struct container_list *list, const struct container *container,
		       const json_t *labels, const json_t *annotations);
/* The first entry of list->current_owner. */
struct container *container_list_find(struct container_list *list, const char *id,
				      const char *namespace);
void container_list_caveat(struct container_list *list, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Starts reading another runtime's state, with a share of its own. */
void container_state_begin(struct container_list *list);
/*
 * state_json_read() of a file of the runtime. 0; -EFBIG beyond max bytes, or beyond the limit of
 * one runtime or of all of them (a caveat says so); otherwise as state_json_read().
 */
int container_state_read(struct container_list *list, int directory, const char *path, size_t max,
			 json_t **out);
/*
 * Can the text be a runtime's id (letters, digits, '_', '.', '-')? Other texts are not used in
 * paths.
 */
bool container_id_is_valid(const char *id);
/* Copies a name, truncated to capacity. */
void container_text_set(char *out, size_t capacity, const char *text);

/*
 * Each reads what it can. What cannot be read becomes a caveat; a runtime that is not installed
 * does not. 0, -ENOMEM.
 */
int container_docker_read(struct container_list *list, const struct container_pids *daemons);
int container_podman_read(struct container_list *list, const struct container_pids *monitors);
int container_containerd_read(struct container_list *list, const struct container_pids *shims);
int container_kubernetes_read(struct container_list *list);

/* The parts that tests and fuzzers call: on an open directory, or on a file's content. */
int container_docker_root(struct container_list *list, int data_root);
int container_docker_parse(const json_t *config, struct container *out);
/* Parses the answer to /containers/json. 0, -EBADMSG, -ENOMEM. */
int container_docker_answer(struct container_list *list, const char *text, size_t bytes);
/* Sends one GET to a daemon's socket. 0; -ETIMEDOUT no answer within a second; -EBADMSG; -errno. */
int container_docker_ask(struct container_list *list, pid_t pid, const char *socket_path);
int container_podman_storage(struct container_list *list, int storage);
int container_podman_index(struct container_list *list, const json_t *index);
/*
 * Parses a monitor's NUL-terminated arguments. 0 and what they name, or -EINVAL. storage: the
 * storage directory of the bundle, "" if there is none.
 */
int container_conmon_parse(const char *arguments, size_t bytes, struct container *out,
			   char *pid_file, char *storage, size_t capacity);
int container_containerd_tasks(struct container_list *list, int tasks);
int container_containerd_parse(const json_t *config, struct container *out);
/*
 * Takes pod, namespace and name from an object of Kubernetes annotations or labels, of any runtime.
 */
void container_kubernetes_annotations(const json_t *annotations, struct container *out);
/*
 * Appends labels and annotations, either of which may be NULL, for container_is_tagged(). Labels
 * may have annotations (Docker), annotations may have both as JSON texts (CRI-O). 0, -ENOMEM.
 */
int container_kubernetes_tags(const json_t *labels, const json_t *annotations, struct buffer *out);
/*
 * "k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT", as Docker and CRI-O name containers. 1, or 0: another
 * name.
 */
int container_kubernetes_name(const char *name, struct container *out);
/* "POD_NAMESPACE_CONTAINER-ID.log" of /var/log/containers. 1, or 0. */
int container_kubernetes_log(const char *file, struct container *out);
int container_kubernetes_logs(struct container_list *list, int directory);
