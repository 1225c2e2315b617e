/* SPDX-License-Identifier: Apache-2.0 */
/* The readers of the runtimes' states, between each other: container.h is what others see. */
#ifndef TRACER_CONTAINER_CONTAINER_LIST_H
#define TRACER_CONTAINER_CONTAINER_LIST_H

#include <jansson.h>

#include "container/container.h"
#include "process/process.h"

#define CONTAINER_CONFIG_BYTES (4u << 20) /* of one container's file */
#define CONTAINER_INDEX_BYTES  (8u << 20) /* of a file that lists many, or a daemon's answer */

/* Processes that tell where state is, and whose word theirs is. */
struct container_pid {
	pid_t pid;
	struct container_owner owner;
};

struct container_pids {
	struct container_pid *items;
	size_t count, room;
};

/*
 * Whose word is that of a process which looks like a runtime's? 1; 0: nobody's, since it has
 * another user's rights than it was started with, or is root in a PID namespace of its own.
 */
int container_owner_of_process(const struct container_list *list, const struct process_info *info,
			       const char *cgroup_text, struct container_owner *out);
/*
 * Who can have made a cgroup (of a line, its first path_bytes bytes). Where no mount shows it:
 * root.
 */
void container_owner_of_cgroup(const struct container_list *list, const struct cgroup_line *line,
			       size_t path_bytes, struct container_owner *out);
/* The inode of its PID namespace; 0: not to be had. */
uint64_t container_pid_namespace(pid_t pid);
/* Is a directory that of whom the list reads, and nobody else's to write to? */
int container_directory_is_owned(const struct container_list *list, int directory);

/*
 * Takes up, under its id, what is not known yet of a container, as the word of list->reading. An
 * init_pid that is not in it is dropped. 0, -ENOMEM.
 */
int container_list_add(struct container_list *list, const struct container *container);
/* The first that is of list->reading. */
struct container *container_list_find(struct container_list *list, const char *id,
				      const char *space);
void container_list_remark(struct container_list *list, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Another runtime's state is read from here on: it has a share of its own. */
void container_state_begin(struct container_list *list);
/*
 * state_json_read() of a file of its. 0; -EFBIG beyond max bytes, or beyond what is read of one
 * runtime or of all of them: the list says so; as there.
 */
int container_state_read(struct container_list *list, int directory, const char *path, size_t max,
			 json_t **out);
/*
 * Is this a text that a runtime gives as an id (of letters, digits, '_', '.', '-')? Others are not
 * used in paths.
 */
int container_id_is_valid(const char *id);
/* Copies a name, cut to the room; "" stays. */
void container_text_set(char *out, size_t room, const char *text);

/*
 * Each reads what it can; what it cannot is a remark or, where nothing of the kind is there,
 * nothing. 0, -ENOMEM.
 */
int container_docker_read(struct container_list *list, const struct container_pids *daemons);
int container_podman_read(struct container_list *list, const struct container_pids *monitors);
int container_containerd_read(struct container_list *list, const struct container_pids *shims);
int container_kubernetes_read(struct container_list *list);

/* Of these, what the tests and fuzzers drive: an open directory, a file's content. */
int container_docker_root(struct container_list *list, int data_root);
int container_docker_parse(const json_t *config, struct container *out);
/* What /containers/json answers. 0, -EBADMSG, -ENOMEM. */
int container_docker_answer(struct container_list *list, const char *text, size_t bytes);
/* One GET to a daemon's socket: 0; -ETIMEDOUT not answered within a second; -EBADMSG; -errno. */
int container_docker_ask(struct container_list *list, pid_t pid, const char *socket_path);
int container_podman_storage(struct container_list *list, int storage);
int container_podman_index(struct container_list *list, const json_t *index);
/*
 * A monitor's arguments, NUL behind each: 0 and what they name, or -EINVAL. storage: the bundle's,
 * "" if there is none.
 */
int container_conmon_parse(const char *arguments, size_t bytes, struct container *out,
			   char *pid_file, char *storage, size_t room);
int container_containerd_tasks(struct container_list *list, int tasks);
int container_containerd_parse(const json_t *config, struct container *out);
/*
 * Pod, namespace and name out of an object of Kubernetes' annotations or labels, of whichever
 * runtime.
 */
void container_kubernetes_annotations(const json_t *annotations, struct container *out);
/*
 * "k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT", as Docker and CRI-O name them. 1, or 0: another name.
 */
int container_kubernetes_name(const char *name, struct container *out);
/* "POD_NAMESPACE_CONTAINER-ID.log" of /var/log/containers. 1, or 0. */
int container_kubernetes_log(const char *file, struct container *out);
int container_kubernetes_logs(struct container_list *list, int directory);

#endif
