/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cgroups: the text of /proc/PID/cgroup (pure), and directories of the cgroup file systems as users
 * name them.
 *
 * A process is in one cgroup of each hierarchy: the v2 hierarchy ("0::/path") and, on v1 and hybrid
 * hosts, one for each set of controllers ("4:memory:/path", "1:name=systemd:/path"). Runtimes put a
 * container's processes into a cgroup of their own, in all hierarchies or in some. Its last
 * component holds the container's id in one of the forms that cgroup_container_parse() lists.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/buffer.h"

#define CGROUP_TEXT_MAX (64u * 1024) /* read of /proc/PID/cgroup */
#define CGROUP_ID_SIZE  65           /* 64 hex digits and NUL */
#define CGROUP_POD_SIZE 37           /* a UUID and NUL */

enum container_runtime {
	CONTAINER_RUNTIME_UNKNOWN,
	CONTAINER_RUNTIME_DOCKER,
	CONTAINER_RUNTIME_PODMAN,
	CONTAINER_RUNTIME_CONTAINERD,
	CONTAINER_RUNTIME_CRIO,
};

struct cgroup_line {
	/* "" for v2, "memory", "cpu,cpuacct", "name=systemd"; not NUL-terminated */
	const char *controllers;
	size_t controllers_bytes;
	/* relative to the hierarchy's root as seen from our cgroup namespace; begins with '/' */
	const char *path;
	size_t path_bytes;
};

/*
 * Parses the next line of a cgroup file. Returns 1 and advances *text past the line, or 0 at the
 * end. Malformed lines are skipped.
 */
int cgroup_next(const char **text, struct cgroup_line *out);

/* What a path says about a container. */
struct cgroup_container {
	enum container_runtime runtime; /* UNKNOWN if the path does not say */
	char id[CGROUP_ID_SIZE];
	char pod_uid[CGROUP_POD_SIZE]; /* Kubernetes, else "" */
	/* up to and including the component that holds the id: the container's own cgroup */
	size_t path_bytes;
};

/*
 * Finds the innermost container that a path names. Returns 1, or 0 if there is none. Recognised
 * components, where ID is 64 lower-case hex digits:
 *   ID | PREFIX-ID | PREFIX-ID.scope | SLICE:PREFIX:ID
 *   PREFIX: docker, libpod, libpod-payload, crio, cri-containerd, nerdctl …
 * Cgroups of a container's monitor (libpod-conmon-ID.scope, crio-conmon-ID.scope) and of Podman's
 * pods (libpod_parent/ID) are not containers.
 */
int cgroup_container_parse(const char *path, size_t bytes, struct cgroup_container *out);
/*
 * The same for the first line of a cgroup file that names a container. *line receives that line;
 * line may be NULL.
 */
int cgroup_container_find(const char *text, struct cgroup_container *out, struct cgroup_line *line);

/*
 * Finds the line whose path has a component that is this id, in one of the forms above but with any
 * characters. Prefers v2, then the innermost component. Returns 1, with *path_bytes up to and
 * including that component; 0: none.
 */
int cgroup_id_find(const char *text, const char *id, struct cgroup_line *line, size_t *path_bytes);

/* A cgroup of one hierarchy. */
struct cgroup_ref {
	char *controllers; /* as in struct cgroup_line */
	/* relative to the hierarchy's root; ends in '/' only for the root itself */
	char *path;
	/* v2: the value of bpf_get_current_cgroup_id() in it; 0: v1, or not looked up */
	uint64_t id;
};

/*
 * Sets ref to the first path_bytes bytes of a line's path. 0, -ENOMEM. The caller frees it with
 * cgroup_ref_free().
 */
int cgroup_ref_set(struct cgroup_ref *ref, const struct cgroup_line *line, size_t path_bytes);
/* Looks up the id below a mount that shows the cgroup. */
void cgroup_ref_identify(struct cgroup_ref *ref);
/*
 * Resolves a cgroup that a user named: a directory (/sys/fs/cgroup/…), or a path below the
 * hierarchy's root as in /proc/PID/cgroup, with or without the leading '/'. If several hierarchies
 * have the path, v2 is preferred, then the first mount. The id is looked up. 0; -ENOENT; -ENOTDIR
 * the directory is not on a cgroup file system; -errno. Errors carry a reason.
 */
int cgroup_ref_open(struct cgroup_ref *ref, const char *name);
/*
 * Reads the mounts of cgroup file systems, for the functions below. 0, -errno. The caller frees the
 * buffer, also on failure.
 */
int cgroup_mounts_read(struct buffer *out);
/*
 * The user that may have named a cgroup: the owner of its parent directory (its own directory may
 * belong to the container). The cgroup is the first path_bytes bytes of a line's path. 0 and *uid;
 * -ENOENT no mount shows it; -ENOMEM.
 */
int cgroup_maker(const struct buffer *mounts, const struct cgroup_line *line, size_t path_bytes,
		 uid_t *uid);
/*
 * The directory of the first path_bytes bytes of a line's path, below a mount that shows it. Its
 * first *mount_bytes bytes are the mount point. NULL: no mount shows it, or out of memory. Caller
 * frees.
 */
char *cgroup_directory(const struct cgroup_line *line, size_t path_bytes, size_t *mount_bytes);
/* Is a process with this cgroup file in that cgroup, or in one below it? */
int cgroup_ref_holds(const struct cgroup_ref *ref, const char *text);
void cgroup_ref_free(struct cgroup_ref *ref);
