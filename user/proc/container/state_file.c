/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/container/state_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"
#include "util/regular.h"

#define PID_BYTES 16

int state_root_open(pid_t pid)
{
	char name[32] = "/";

	if (pid)
		snprintf(name, sizeof(name), "/proc/%d/root", pid);
	int root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root < 0 ? error_errno() : root;
}

int state_dir_open(pid_t pid, const char *path)
{
	int root = state_root_open(pid), fd;

	if (root < 0)
		return root;
	fd = regular_folder(root, path, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	close(root);
	return fd;
}

int state_dir_below(int directory, const char *path)
{
	return regular_folder(directory, path,
			      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

/* Opens a regular file of at most max bytes. */
static int open_regular(int directory, const char *path, size_t max)
{
	int fd = regular_open(directory, path,
			      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	struct stat st;
	int err = 0;

	if (fd < 0)
		return fd == -EISDIR ? -EINVAL : fd;
	if (fstat(fd, &st))
		err = error_errno();
	else if (st.st_size > 0 && (uint64_t)st.st_size > max)
		err = -EFBIG;
	if (!err)
		return fd;
	close(fd);
	return err;
}

int state_file_read(int directory, const char *path, size_t max, struct buffer *out)
{
	int fd = open_regular(directory, path, max);
	ssize_t got = 1;
	int err = 0;

	if (fd < 0)
		return fd;
	out->size = 0;
	while (!err && got > 0) {
		err = buffer_reserve(out, 4096);
		if (err)
			break;
		got = read(fd, out->data + out->size, out->capacity - out->size - 1);
		if (got < 0)
			err = error_errno();
		else
			out->size += (size_t)got;
		if (out->size > max)
			err = -EFBIG;
	}
	close(fd);
	if (!err)
		out->data[out->size] = '\0';
	return err;
}

/* Does the text hold more values than are parsed? Characters within strings count too. */
static bool has_many_values(const struct buffer *text)
{
	size_t count = 0;

	for (size_t i = 0; i < text->size; i++)
		count += text->data[i] == ',' || text->data[i] == ':' || text->data[i] == '[' ||
			 text->data[i] == '{';
	return count > STATE_VALUES_MAX;
}

int state_json_read(int directory, const char *path, size_t max, size_t *bytes, json_t **out)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	int err = state_file_read(directory, path, max, &text);

	if (bytes)
		*bytes = text.size;
	if (!err && has_many_values(&text))
		err = -EFBIG;
	if (!err) {
		json_t *json = json_loadb((const char *)text.data, text.size, 0, NULL);

		if (json)
			*out = json;
		else
			err = -EBADMSG;
	}
	return err;
}

pid_t state_pid_read(int directory, const char *path)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	long pid = 0;

	if (!state_file_read(directory, path, PID_BYTES, &text) && isdigit(text.data[0]))
		pid = strtol((const char *)text.data, NULL, 10);
	return pid > 0 && pid == (pid_t)pid ? (pid_t)pid : 0;
}

struct dir_walk {
	int directory;
	int (*each)(void *context, int directory, const char *name);
	void *context;
};

static int name_take(void *context, const char *name)
{
	const struct dir_walk *walk = context;

	return walk->each(walk->context, walk->directory, name);
}

int state_dir_each(int directory, int (*each)(void *context, int directory, const char *name),
		   void *context)
{
	struct dir_walk walk = {directory, each, context};

	return regular_names(directory, STATE_ENTRIES_MAX, name_take, &walk);
}

const char *state_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}
