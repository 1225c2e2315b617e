/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of cgroup.h that resolves directories of the mounted cgroup file systems, as listed in
 * /proc/self/mountinfo.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proc/container/cgroup.h"
#include "proc/process.h"
#include "util/cleanup.h"
#include "util/error.h"

#define MOUNTS_MAX_BYTES (4u << 20)
#define HANDLE_BYTES     8 /* kernfs file handle: the 64-bit cgroup id that BPF uses */

/* One mount of a cgroup file system. The strings point into the line that was parsed. */
struct mount {
	char *root, *point, *type, *options;
};

/*
 * "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - TYPE SOURCE SUPEROPTIONS". The kernel escapes
 * spaces in names as \040.
 */
static int mount_parse(char *line, struct mount *out)
{
	char *fields[6], *rest = strstr(line, " - ");
	char *state = line;

	if (!rest)
		return 0;
	*rest = '\0';
	for (int i = 0; i < 6; i++) {
		fields[i] = strsep(&state, " ");
		if (!fields[i])
			return 0;
	}
	rest += 3;
	out->root = fields[3];
	out->point = fields[4];
	out->type = strsep(&rest, " ");
	strsep(&rest, " ");
	out->options = rest;
	return rest && (!strcmp(out->type, "cgroup") || !strcmp(out->type, "cgroup2"));
}

static bool list_has(const char *list, const char *word, size_t bytes)
{
	while (list) {
		if (!strncmp(list, word, bytes) && (!list[bytes] || list[bytes] == ','))
			return 1;
		list = strchr(list, ',');
		if (list)
			list++;
	}
	return 0;
}

/*
 * Does the mount belong to the hierarchy with these controllers? All of them must be in its
 * options.
 */
static bool mount_is_of(const struct mount *mount, const char *controllers, size_t bytes)
{
	if (!bytes || !strcmp(mount->type, "cgroup2"))
		return !bytes && !strcmp(mount->type, "cgroup2");
	for (size_t start = 0, end; start < bytes; start = end + 1) {
		const char *comma = memchr(controllers + start, ',', bytes - start);

		end = comma ? (size_t)(comma - controllers) : bytes;
		if (!list_has(mount->options, controllers + start, end - start))
			return 0;
	}
	return 1;
}

static int own_file_read(const char *name, struct buffer *out)
{
	int err = process_file_read(getpid(), name, MOUNTS_MAX_BYTES, out);

	return err ? error_set(err, "/proc/self/%s cannot be read", name) : 0;
}

/*
 * Converts a path below the mount point to a path within the hierarchy. NULL if the path is not
 * below the mount point. Caller frees.
 */
static char *path_below(const struct mount *mount, const char *path)
{
	size_t point = strlen(mount->point), root = strlen(mount->root);
	char *text;

	if (strncmp(path, mount->point, point) || (path[point] && path[point] != '/'))
		return NULL;
	if (asprintf(&text, "%s%s", root == 1 ? "" : mount->root, path + point) < 0)
		return NULL;
	size_t length = strlen(text);
	while (length > 1 && text[length - 1] == '/')
		text[--length] = '\0';
	if (!length) {
		free(text);
		text = strdup("/");
	}
	return text;
}

/*
 * Converts a path within the hierarchy to a directory below the mount point. NULL if the mount does
 * not show it. Caller frees.
 */
static char *mount_directory(const struct mount *mount, const char *path, size_t bytes)
{
	size_t root = strlen(mount->root);
	char *text;

	if (root == 1)
		root = 0;
	if (bytes < root || memcmp(path, mount->root, root) || (bytes > root && path[root] != '/'))
		return NULL;
	return asprintf(&text, "%s%.*s", mount->point, (int)(bytes - root), path + root) < 0 ? NULL
											     : text;
}

static uint64_t directory_id(int fd)
{
	union {
		struct file_handle handle;
		char bytes[sizeof(struct file_handle) + HANDLE_BYTES];
	} at = {.handle = {.handle_bytes = HANDLE_BYTES}};
	struct stat st;
	uint64_t id;
	int mount;

	if (!name_to_handle_at(fd, "", &at.handle, &mount, AT_EMPTY_PATH) &&
	    at.handle.handle_bytes == HANDLE_BYTES) {
		memcpy(&id, at.handle.f_handle, sizeof(id));
		return id;
	}
	return fstat(fd, &st) ? 0 : st.st_ino; /* the same number on 64-bit machines */
}

/* cgroup_directory() over the mountinfo lines in rows, which are modified. */
static char *directory_below(char *rows, const struct cgroup_line *line, size_t path_bytes,
			     size_t *mount_bytes)
{
	char *row, *directory = NULL;
	struct mount mount;
	struct stat st;

	while (!directory && (row = strsep(&rows, "\n"))) {
		if (!mount_parse(row, &mount) ||
		    !mount_is_of(&mount, line->controllers, line->controllers_bytes))
			continue;
		directory = mount_directory(&mount, line->path, path_bytes);
		*mount_bytes = strlen(mount.point);
		/* "/..": above the root of our cgroup namespace. */
		if (directory &&
		    (strstr(directory, "/..") || lstat(directory, &st) || !S_ISDIR(st.st_mode))) {
			free(directory);
			directory = NULL;
		}
	}
	return directory;
}

char *cgroup_directory(const struct cgroup_line *line, size_t path_bytes, size_t *mount_bytes)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	char *directory = NULL;

	if (!own_file_read("mountinfo", &text))
		directory = directory_below((char *)text.data, line, path_bytes, mount_bytes);
	return directory;
}

/* The id of a v2 cgroup, looked up below the first mount that shows it; 0 if no mount does. */
static uint64_t path_id(const char *path, size_t bytes)
{
	const struct cgroup_line line = {.controllers = "", .path = path, .path_bytes = bytes};
	size_t mount_bytes;
	_cleanup_free_ char *directory = cgroup_directory(&line, bytes, &mount_bytes);
	_cleanup_close_ int fd =
		directory ? open(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	uint64_t id = fd >= 0 ? directory_id(fd) : 0;

	return id;
}

int cgroup_mounts_read(struct buffer *out)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	int err = own_file_read("mountinfo", &text);
	char *state = (char *)text.data, *line;

	while (!err && (line = strsep(&state, "\n"))) {
		const char *type = strstr(line, " - cgroup");

		if (!type)
			continue;
		err = buffer_append(out, line, strlen(line)) ?: buffer_append(out, "\n", 1);
	}
	return err ?: buffer_append(out, "", 1);
}

int cgroup_maker(const struct buffer *mounts, const struct cgroup_line *line, size_t path_bytes,
		 uid_t *uid)
{
	const char *end = memrchr(line->path, '/', path_bytes);
	_cleanup_free_ char *copy = mounts->size ? strdup((const char *)mounts->data) : NULL;
	int err = mounts->size && !copy ? -ENOMEM : -ENOENT;
	_cleanup_free_ char *directory = NULL;
	size_t mount_bytes;
	struct stat st;

	if (end && copy)
		directory = directory_below(copy, line, (size_t)(end - line->path), &mount_bytes);
	if (directory && !lstat(directory, &st)) {
		*uid = st.st_uid;
		err = 0;
	}
	return err;
}

int cgroup_ref_set(struct cgroup_ref *ref, const struct cgroup_line *line, size_t path_bytes)
{
	char *controllers = strndup(line->controllers, line->controllers_bytes);
	char *path = strndup(line->path, path_bytes);

	if (!controllers || !path) {
		free(controllers);
		free(path);
		return -ENOMEM;
	}
	cgroup_ref_free(ref);
	ref->controllers = controllers;
	ref->path = path;
	return 0;
}

void cgroup_ref_identify(struct cgroup_ref *ref)
{
	if (!ref->controllers[0])
		ref->id = path_id(ref->path, strlen(ref->path));
}

/* Fills ref with the hierarchy of a mount, spelled as in /proc/PID/cgroup. */
static int ref_fill(struct cgroup_ref *ref, const struct mount *mount, const char *directory)
{
	_cleanup_free_ char *path = path_below(mount, directory);
	_cleanup_(buffer_free) struct buffer text = {0};
	struct cgroup_line line;
	int err = path ? own_file_read("cgroup", &text) : -ENOENT;

	const char *next = err ? "" : (const char *)text.data;
	err = err ?: -ENOENT;
	while (err == -ENOENT && cgroup_next(&next, &line)) {
		if (!mount_is_of(mount, line.controllers, line.controllers_bytes))
			continue;
		line.path = path;
		err = cgroup_ref_set(ref, &line, strlen(path));
		if (!err)
			cgroup_ref_identify(ref);
	}
	if (err == -ENOENT)
		error_set(err, "the hierarchy at %s is not in /proc/self/cgroup", mount->point);
	return err;
}

/*
 * Resolves symlinks in a directory name. 0; -ENOTDIR if it is not on a cgroup file system; -errno.
 */
static int directory_name(const char *path, char *out, size_t capacity)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statfs type;
	char link[40];
	int err = 0;

	if (fd < 0)
		return error_errno();
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t bytes = readlink(link, out, capacity - 1);
	if (bytes < 0 || (size_t)bytes == capacity - 1)
		err = bytes < 0 ? error_errno() : -ENAMETOOLONG;
	else if (fstatfs(fd, &type))
		err = error_errno();
	else if (type.f_type != CGROUP2_SUPER_MAGIC && type.f_type != CGROUP_SUPER_MAGIC)
		err = -ENOTDIR;
	if (!err)
		out[bytes] = '\0';
	return err;
}

/*
 * Finds the cgroup among the mounts. A directory (absolute, without symlinks) belongs to the mount
 * with the longest matching mount point. Without a directory, the name, spelled as in
 * /proc/PID/cgroup, is tried below each mount; the caller tries v2 mounts first.
 */
static int mounts_search(struct cgroup_ref *ref, char *mounts, const char *directory,
			 const char *name, int v2)
{
	char found[PATH_MAX];
	size_t longest = 0;
	struct mount mount;
	int err = -ENOENT;
	char *line;

	while ((line = strsep(&mounts, "\n")) && (directory || err == -ENOENT)) {
		char *below;

		if (!mount_parse(line, &mount) ||
		    (!directory && v2 != !strcmp(mount.type, "cgroup2")))
			continue;
		if (directory) {
			below = path_below(&mount, directory);
			if (below && strlen(mount.point) >= longest) {
				longest = strlen(mount.point);
				err = ref_fill(ref, &mount, directory);
			}
		} else {
			below = mount_directory(&mount, name, strlen(name));
			if (below && !directory_name(below, found, sizeof(found)))
				err = ref_fill(ref, &mount, found);
		}
		free(below);
	}
	return err;
}

int cgroup_ref_open(struct cgroup_ref *ref, const char *name)
{
	struct buffer text = {0}, copy = {0};
	char directory[PATH_MAX], *below = NULL;
	int not_directory, err;

	error_clear();
	/*
	 * Try it as a directory first: /sys/fs/cgroup/x is not a cgroup's path within its
	 * hierarchy.
	 */
	not_directory =
		name[0] == '/' ? directory_name(name, directory, sizeof(directory)) : -ENOENT;
	if (not_directory && not_directory != -ENOENT && not_directory != -ENOTDIR)
		return not_directory;
	if (asprintf(&below, "%s%s", name[0] == '/' ? "" : "/", name) < 0)
		return -ENOMEM;
	err = own_file_read("mountinfo", &text) ?: -ENOENT;
	for (int v2 = 1; err == -ENOENT && text.size && v2 >= 0; v2--) {
		copy.size = 0;
		err = buffer_append(&copy, text.data, text.size + 1)
			      ?: mounts_search(ref, (char *)copy.data,
					       not_directory ? NULL : directory, below, v2);
	}
	if (err == -ENOENT && not_directory == -ENOTDIR)
		err = error_set(-ENOTDIR, "it is not a directory of a cgroup file system");
	else if (err == -ENOENT)
		error_set(err, "no mounted cgroup file system has it");
	buffer_free(&text);
	buffer_free(&copy);
	free(below);
	return err;
}
