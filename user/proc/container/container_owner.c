/* SPDX-License-Identifier: Apache-2.0 */
/* The owner of what is read about containers. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/container/container_list.h"

int container_owner_is(const struct container_owner *a, const struct container_owner *b)
{
	return a->uid == b->uid && !strcmp(a->inside, b->inside);
}

uint64_t container_pid_namespace(pid_t pid)
{
	struct stat st;
	char name[40];

	snprintf(name, sizeof(name), "/proc/%d/ns/pid", pid);
	return stat(name, &st) ? 0 : st.st_ino;
}

static void inside_set(const struct container_list *list, const char *id,
		       struct container_owner *out)
{
	if (strcmp(id, list->own) != 0)
		strcpy(out->inside, id);
}

/*
 * A program with set-uid or set-gid bits can be started by any user under any name, so its user's
 * identity proves nothing.
 */
static int lends_rights(const struct process_info *info)
{
	struct statx st;
	char name[40];

	/* What the kernel knows already: the file system may not answer. */
	snprintf(name, sizeof(name), "/proc/%d/exe", info->pid);
	return info->uids_differ || statx(AT_FDCWD, name, AT_STATX_DONT_SYNC, STATX_MODE, &st) ||
	       st.stx_mode & (S_ISUID | S_ISGID);
}

/* Is it our PID namespace, or that of PID 1, which has all processes that we see? */
static int is_our_namespace(pid_t pid)
{
	uint64_t namespace = container_pid_namespace(pid);

	return namespace && (namespace == container_pid_namespace(getpid()) ||
			     namespace == container_pid_namespace(1));
}

int container_owner_of_process(const struct container_list *list, const struct process_info *info,
			       const char *cgroup_text, struct container_owner *out)
{
	struct cgroup_container in;

	*out = (struct container_owner){.uid = info->uid};
	if (lends_rights(info))
		return 0;
	if (cgroup_container_find(cgroup_text, &in, NULL))
		inside_set(list, in.id, out);
	/*
	 * Root in another PID namespace is in a container too, though not in one of a runtime that
	 * we know.
	 */
	return out->uid || out->inside[0] || is_our_namespace(info->pid);
}

void container_owner_of_cgroup(const struct container_list *list, const struct cgroup_line *line,
			       size_t path_bytes, struct container_owner *out)
{
	const char *slash = memrchr(line->path, '/', path_bytes);
	struct cgroup_container in;

	*out = (struct container_owner){0};
	if (cgroup_maker(&list->mounts, line, path_bytes, &out->uid))
		out->uid = 0;
	if (slash && cgroup_container_parse(line->path, (size_t)(slash - line->path), &in))
		inside_set(list, in.id, out);
}

int container_directory_is_owned(const struct container_list *list, int directory)
{
	struct stat st;

	return !fstat(directory, &st) && st.st_uid == list->current_owner.uid &&
	       !(st.st_mode & S_IWOTH);
}
