/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cgroups: the text of /proc/PID/cgroup (pure), and directories of the cgroup file systems as the
 * user names them.
 *
 * A process is in one cgroup of each hierarchy: the one of v2 ("0::/path") and, on v1 and hybrid
 * hosts, one for each set of controllers ("4:memory:/path", "1:name=systemd:/path"). Runtimes put a
 * container's processes into a cgroup of their own, in all hierarchies or in some, and its last
 * component holds the container's id in one of the forms that cgroup_container_parse() lists.
 */
#ifndef TRACER_CONTAINER_CGROUP_H
#define TRACER_CONTAINER_CGROUP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"

#define CGROUP_TEXT_MAX (64u * 1024) /* of /proc/PID/cgroup that is looked at */
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
	/* "" v2, "memory", "cpu,cpuacct", "name=systemd"; no NUL behind it */
	const char *controllers;
	size_t controllers_bytes;
	/* from the hierarchy's root, as seen from our cgroup namespace: begins with '/' */
	const char *path;
	size_t path_bytes;
};

/*
 * Takes the next line of a cgroup file's text: 1, and *text is behind it; 0 at the end. Malformed
 * lines are passed over.
 */
int cgroup_next(const char **text, struct cgroup_line *out);

/* What a path tells of a container. */
struct cgroup_container {
	enum container_runtime runtime; /* UNKNOWN where the path does not say */
	char id[CGROUP_ID_SIZE];
	char pod_uid[CGROUP_POD_SIZE]; /* of Kubernetes, "" without */
	/* up to and with the component that holds the id: the container's own cgroup */
	size_t path_bytes;
};

/*
 * The innermost container that a path names. 1, or 0: none. Components that count, ID being 64
 * lower-case hex digits:
 *   ID | PREFIX-ID | PREFIX-ID.scope | SLICE:PREFIX:ID
 *   PREFIX: docker, libpod, libpod-payload, crio, cri-containerd, nerdctl …
 * Those of a container's monitor (libpod-conmon-ID.scope, crio-conmon-ID.scope) and of Podman's
 * pods (libpod_parent/ID) are none.
 */
int cgroup_container_parse(const char *path, size_t bytes, struct cgroup_container *out);
/*
 * The same of the first line of a cgroup file that names one; *line (NULL: not wanted) is that
 * line.
 */
int cgroup_container_find(const char *text, struct cgroup_container *out, struct cgroup_line *line);

/*
 * The line whose path has a component that is this id, in one of the forms above whatever the id
 * looks like; v2's first, the innermost component. 1: *line, and *path_bytes up to and with that
 * component; 0: none.
 */
int cgroup_id_find(const char *text, const char *id, struct cgroup_line *line, size_t *path_bytes);

/* A cgroup of one hierarchy. */
struct cgroup_ref {
	char *controllers; /* as in struct cgroup_line */
	/* from the hierarchy's root, no '/' at its end but for the root itself */
	char *path;
	/* v2: what bpf_get_current_cgroup_id() returns there; 0: v1, or not looked up */
	uint64_t id;
};

/*
 * Of a line's path, its first path_bytes bytes. 0, -ENOMEM. Owned by the caller: cgroup_ref_free().
 */
int cgroup_ref_set(struct cgroup_ref *ref, const struct cgroup_line *line, size_t path_bytes);
/* Looks the id up, below a mount that shows the cgroup. */
void cgroup_ref_identify(struct cgroup_ref *ref);
/*
 * The cgroup that a user named: a directory (/sys/fs/cgroup/…), or a path below the hierarchy's
 * root as /proc/PID/cgroup shows it, with or without its first '/'; of several hierarchies that
 * have it v2's is taken, then the first mounted. 0; -ENOENT; -ENOTDIR it is a directory, but of no
 * cgroup file system; -errno; with a reason. The id is looked up.
 */
int cgroup_ref_open(struct cgroup_ref *ref, const char *name);
/*
 * The mounts of cgroup file systems, for what follows. 0, -errno; the caller frees the buffer, on
 * failure too.
 */
int cgroup_mounts_read(struct buffer *out);
/*
 * Who may have given a cgroup its name: the owner of the directory that it was made in (that of its
 * own directory may be the container's). Of a line's path, its first path_bytes bytes. 0 and *uid;
 * -ENOENT no mount shows it; -ENOMEM.
 */
int cgroup_maker(const struct buffer *mounts, const struct cgroup_line *line, size_t path_bytes,
		 uid_t *uid);
/*
 * The directory of a line's path, its first path_bytes bytes, below a mount that shows it; of it
 * *mount_bytes are the mount's own place. NULL: none shows it, or no memory. Caller frees.
 */
char *cgroup_directory(const struct cgroup_line *line, size_t path_bytes, size_t *mount_bytes);
/* Is a process with this cgroup file in that cgroup, or one below it? */
int cgroup_ref_holds(const struct cgroup_ref *ref, const char *text);
void cgroup_ref_free(struct cgroup_ref *ref);

#endif
