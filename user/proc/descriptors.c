/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proc/process.h"
#include "util/buffer.h"
#include "util/cleanup.h"
#include "util/error.h"

#define DESCRIPTORS_MAX 65536

/* "/any/path/NAME", with " (deleted)" if the name was removed. */
static bool link_has_name(const char *link, const char *name)
{
	const char *last = strrchr(link, '/');
	size_t length = strlen(name);

	return last && !strncmp(last + 1, name, length) &&
	       (!last[1 + length] || !strcmp(last + 1 + length, " (deleted)"));
}

int descriptors_find(pid_t pid, const char *name, descriptor_fn found, void *context)
{
	int left = DESCRIPTORS_MAX, err = 0;
	char path[32], link[4096];
	struct dirent *entry;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	_cleanup_(closedirp) DIR *directory = opendir(path);
	if (!directory)
		return error_errno();
	while (!err && left-- && (entry = readdir(directory))) {
		ssize_t length =
			readlinkat(dirfd(directory), entry->d_name, link, sizeof(link) - 1);

		if (length <= 0)
			continue;
		link[length] = '\0';
		if (link_has_name(link, name))
			err = found(context, pid, entry->d_name);
	}
	return err;
}

/* The flags with which it was opened; -errno. */
static int descriptor_flags(pid_t pid, const char *number)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	char name[32];
	const char *flags;

	snprintf(name, sizeof(name), "fdinfo/%.16s", number);
	int result = process_file_read(pid, name, 4096, &text);
	flags = result ? NULL : strstr((const char *)text.data, "flags:");
	if (flags && sscanf(flags, "flags: %o", (unsigned int *)&result) != 1)
		result = -EPROTO;
	else if (!flags && !result)
		result = -EPROTO;
	return result;
}

struct writers_search {
	const struct stat *file;
	struct writers writers;
};

static int writer_take(void *context, pid_t pid, const char *number)
{
	struct writers_search *search = context;
	int flags = descriptor_flags(pid, number);
	struct statx file;
	char path[64];

	/* Closed meanwhile. */
	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", pid, number);
	/* What the kernel knows already: its file system may be the process's own. */
	if (!statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &file) &&
	    makedev(file.stx_dev_major, file.stx_dev_minor) == search->file->st_dev &&
	    file.stx_ino == search->file->st_ino) {
		search->writers.count++;
		search->writers.at_offset |= !(flags & O_APPEND);
	}
	return 0;
}

struct writers writers_find(pid_t pid, const char *name, const struct stat *file)
{
	struct writers_search search = {.file = file};

	descriptors_find(pid, name, writer_take, &search);
	return search.writers;
}
