/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers: maps the name or ID that a runtime gave a container to its processes.
 *
 * Running containers are found by scanning processes: cgroup paths hold ids (cgroup.h), and the
 * parent of a container's init is its monitor (containerd-shim, whose working directory is the
 * container's bundle; conmon, whose arguments name the container). Names come from the runtimes'
 * state on disk, found where the running daemons and monitors keep it and in the default locations:
 *   Docker      DATA-ROOT/containers/ID/config.v2.json (container_docker.c)
 *   Podman      STORAGE/DRIVER-containers/containers.json, of root and of other users
 *               (container_podman.c; also CRI-O)
 *   containerd  …/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json (container_containerd.c)
 *   Kubernetes  annotations and names of these, /var/log/containers (container_kubernetes.c)
 * Labels and annotations are those of the same files, and for Podman and CRI-O of
 * STORAGE/DRIVER-containers/ID/userdata/config.json.
 * Any process can call itself a monitor, and any user can write such files. Therefore each
 * statement about a container is attributed to an owner (struct container_owner): the user of the
 * process, of the directory, and of whoever could create the cgroup. A Docker daemon's socket is
 * asked only if its state cannot be read, for at most a second. No client program is run.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/container/cgroup.h"

#define CONTAINER_ID_SIZE        129
#define CONTAINER_NAME_SIZE      256
#define CONTAINER_NAMESPACE_SIZE 128
#define CONTAINER_LABEL_SIZE     512
#define CONTAINERS_MAX           4096

/*
 * The owner of a container, or of state that describes containers. A runtime is trusted only for
 * containers of its own user and, if it runs in a container, only for those nested in it. A
 * statement of another owner describes another container, even with the same name or ID.
 */
struct container_owner {
	uid_t uid;
	/* the container that the runtime runs in; "": none, or the one that we run in */
	char inside[CGROUP_ID_SIZE];
};

struct container {
	struct container_owner owner;
	enum container_runtime runtime;
	char id[CONTAINER_ID_SIZE];
	char name[CONTAINER_NAME_SIZE];               /* "": unknown */
	char namespace[CONTAINER_NAMESPACE_SIZE];     /* containerd's namespace, else "" */
	char pod[CONTAINER_NAME_SIZE];                /* Kubernetes, else "" */
	char pod_namespace[CONTAINER_NAMESPACE_SIZE]; /* Kubernetes, else "" */
	/* labels and annotations, for container_is_tagged() */
	struct buffer tags;
	unsigned int sandbox : 1;       /* it only holds a pod's namespaces */
	unsigned int init_is_first : 1; /* init_pid is PID 1 in its namespace */
	pid_t init_pid;                 /* in our PID namespace; 0: not running */
	struct cgroup_ref cgroup;       /* its own; path NULL: it has none */
	/* inode of its own PID namespace, if it has no cgroup of its own; else 0 */
	uint64_t pid_namespace;
};

struct container_list {
	struct container *entries;
	size_t count, capacity;
	char caveat[256];                     /* what could not be read, "" if nothing */
	struct container_owner current_owner; /* owner of the state being read; root at first */
	struct buffer mounts;                 /* cgroup file systems, while the list is read */
	char own[CGROUP_ID_SIZE];             /* the container that we run in, "" for none */
	size_t share_bytes, state_bytes; /* bytes of state read: of one runtime, and in total */
	size_t state_refused;            /* state files that were left out */
	size_t indexed;                  /* entries of Podman's indexes */
};

/*
 * Reads all containers, running or only known. 0, -ENOMEM, -errno of /proc. Caller frees.
 * Containers beyond CONTAINERS_MAX and state that cannot be read are left out and mentioned in
 * caveat.
 */
int container_list_read(struct container_list *out);
void container_list_free(struct container_list *list);

bool container_owner_is(const struct container_owner *a, const struct container_owner *b);
/* Is a process in the container? cgroup_text is the content of its cgroup file. */
int container_holds(const struct container *container, pid_t pid, const char *cgroup_text);
/* The innermost container of the list that a process is in; NULL: none. Borrowed from the list. */
const struct container *container_of(const struct container_list *list, pid_t pid);

enum container_tag { CONTAINER_LABEL, CONTAINER_ANNOTATION };

/*
 * Has a running container, or the sandbox of its pod, a label or annotation as a text says: KEY, or
 * KEY=VALUE with a pattern of fnmatch(3) for the value? container is one of the list. Tags with
 * more than 1024 bytes are not kept, nor more than 16 KiB of tags of a container.
 */
bool container_is_tagged(const struct container_list *list, const struct container *container,
			 enum container_tag kind, const char *text);

/*
 * The containers that a text selects, as a user types it:
 *   NAME or ID                    as the runtime shows it; in Kubernetes the name within the pod
 *   POD/NAME, NAMESPACE/POD/NAME  a pod's container; also containerd's NAMESPACE/ID
 *   pod/POD, pod/NAMESPACE/POD    all containers of a Kubernetes pod
 * An exact ID ranks above an exact name, and that above a prefix of an ID or name, which must be
 * unique. Only running containers are found. A name ranks above an ID that its owner could choose
 * freely (owned by a user other than root, and not 64 digits taken from a cgroup). If containers of
 * several owners match exactly, none is chosen, even if root's does not run.
 */
struct container_choice {
	/* borrowed from the list; the caller frees the array */
	const struct container **entries;
	size_t count;
	int exact; /* matched the whole name or ID */
};
/*
 * whole_names: do not match a prefix of a name (a prefix of an ID still matches). 0; -ENOENT no
 * match (the reason lists the candidates); -EEXIST more than one (the reason lists them); -ENOMEM.
 */
int container_choose(const struct container_list *list, const char *text, int whole_names,
		     struct container_choice *out);

/* "web-1", "NAMESPACE/POD/CONTAINER" or, without a name, the ID's first 12 digits. Returns out. */
const char *container_label(const struct container *container, char out[CONTAINER_LABEL_SIZE]);
/* "docker", "podman", …, "" if unknown */
const char *container_runtime_name(enum container_runtime runtime);
