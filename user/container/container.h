/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers: from the name or ID that a runtime gave one to its processes.
 *
 * What runs is told by the processes themselves: their cgroups hold ids (cgroup.h), and a
 * container's monitor is its init's parent (containerd-shim, whose working directory is the
 * container's bundle; conmon, whose arguments name it). Names come from the runtimes' own state on
 * disk, found where the running daemons and monitors keep it and in the usual places:
 *   Docker      DATA-ROOT/containers/ID/config.v2.json (container_docker.c)
 *   Podman      STORAGE/DRIVER-containers/containers.json, of root's and of other users'
 *               (container_podman.c; CRI-O's, too)
 *   containerd  …/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json (container_containerd.c)
 *   Kubernetes  annotations and names of these, /var/log/containers (container_kubernetes.c)
 * Any process can call itself a monitor, and any user has files: what is said of a container counts
 * only as the word of who says it (struct container_owner), by the user of the process, of the
 * directory, and of whoever could make the cgroup. A Docker daemon's socket is asked only where its
 * state cannot be read, and for a second at most. No client program is run.
 */
#ifndef TRACER_CONTAINER_CONTAINER_H
#define TRACER_CONTAINER_CONTAINER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "container/cgroup.h"

#define CONTAINER_ID_SIZE    129
#define CONTAINER_NAME_SIZE  256
#define CONTAINER_SPACE_SIZE 128
#define CONTAINER_LABEL_SIZE 512
#define CONTAINERS_MAX       4096

/*
 * Whose word something is. A runtime speaks of containers of its own user's alone, and one that
 * runs in a container itself of those within: what others say of them is another container,
 * whatever its name or ID is.
 */
struct container_owner {
	uid_t uid;
	char inside
		/*
		 * the container that the runtime itself is in; "": none, or the one that we are in
		 */
		[CGROUP_ID_SIZE];
};

struct container {
	struct container_owner owner;
	enum container_runtime runtime;
	char id[CONTAINER_ID_SIZE];
	char name[CONTAINER_NAME_SIZE];           /* "": nothing tells it */
	char space[CONTAINER_SPACE_SIZE];         /* containerd's namespace, else "" */
	char pod[CONTAINER_NAME_SIZE];            /* of Kubernetes, else "" */
	char pod_namespace[CONTAINER_SPACE_SIZE]; /* of Kubernetes, else "" */
	unsigned int sandbox : 1;                 /* what only holds a pod's namespaces */
	unsigned int init_is_first : 1;           /* init_pid is PID 1 in its namespace */
	pid_t init_pid;                           /* here; 0: it does not run */
	struct cgroup_ref cgroup;                 /* its own; path NULL: it has none */
	/* inode of its own one, if it has no cgroup; else 0 */
	uint64_t pid_namespace;
};

struct container_list {
	struct container *entries;
	size_t count, room;
	char remark[256];                /* what could not be looked into, "" if nothing */
	struct container_owner reading;  /* whose state is being read: root's at first */
	struct buffer mounts;            /* of the cgroup file systems, while it is read */
	char own[CGROUP_ID_SIZE];        /* the container that we are in, "" for none */
	size_t share_bytes, state_bytes; /* of state that was read: of one runtime's, and in all */
	size_t state_refused;            /* files of it that were left out */
	size_t indexed;                  /* entries of Podman's indexes */
};

/*
 * All containers that run, and those that are known and do not. 0, -ENOMEM, -errno of /proc. Caller
 * frees. More than CONTAINERS_MAX, and state that could not be read, is left out and told in
 * remark.
 */
int container_list_read(struct container_list *out);
void container_list_free(struct container_list *list);

int container_owner_is(const struct container_owner *a, const struct container_owner *b);
/* Is a process, whose cgroup file's text is given, in the container? */
int container_holds(const struct container *container, pid_t pid, const char *cgroup_text);
/* The innermost container of the list that a process is in; NULL: none. Borrowed from the list. */
const struct container *container_of(const struct container_list *list, pid_t pid);

/*
 * The containers that a text means, as a user types it:
 *   NAME or ID                    as the runtime shows it; of Kubernetes its name in its pod
 *   POD/NAME, NAMESPACE/POD/NAME  a pod's container; NAMESPACE/ID of containerd, too
 *   pod/POD, pod/NAMESPACE/POD    all containers of a pod of Kubernetes
 * An exact ID goes before an exact name, that before the beginning of an ID or of a name, which
 * must be the only one. Only what runs is found. A name goes before an ID that anybody may choose
 * (of another user than root, and not of 64 digits and a cgroup's). What fits exactly of several
 * owners is never chosen from: also not where root's does not run.
 */
struct container_choice {
	/* borrowed from the list; the array is the caller's to free() */
	const struct container **entries;
	size_t count;
	int exact; /* by the whole name or ID */
};
/*
 * whole_names: the beginning of a name is none (that of an ID is). 0; -ENOENT none (the reason
 * lists what there is); -EEXIST more than one (the reason lists them); -ENOMEM.
 */
int container_choose(const struct container_list *list, const char *text, int whole_names,
		     struct container_choice *out);

/* "web-1", "NAMESPACE/POD/CONTAINER" or, without a name, the ID's first 12 digits. Returns out. */
const char *container_label(const struct container *container, char out[CONTAINER_LABEL_SIZE]);
const char *
container_runtime_name(enum container_runtime runtime); /* "docker", "podman", …, "" when unknown */

#endif
