/* SPDX-License-Identifier: Apache-2.0 */
#include "object/perfmap/jitdump_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/page.h"
#include "util/text.h"

/* The file gets its name with its header in it. */
static int file_make(struct jitdump_out *out, struct outfile *file)
{
	char path[32];
	int err = jitdump_header_put(&out->record, getpid(), clock_ns(CLOCK_MONOTONIC))
			  ?: outfile_location(file, out->path, sizeof(out->path))
			  ?: outfile_write(file, out->record.data, out->record.size);

	/* The file itself, whatever takes its name. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", outfile_fd(file));
	if (!err && (out->fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC)) < 0)
		err = error_errno();
	out->bytes = out->record.size;
	return outfile_end(file, err);
}

/* Under its final name, which is the one that perf records. */
static int page_map(struct jitdump_out *out)
{
	void *page = mmap(NULL, page_bytes(), PROT_READ | PROT_EXEC, MAP_PRIVATE, out->fd, 0);

	if (page == MAP_FAILED && errno == EPERM)
		return error_set(-EPERM,
				 "'%s' cannot be mapped executable, by which perf finds it: its "
				 "file system is mounted noexec",
				 out->path);
	if (page == MAP_FAILED)
		return error_set(-errno, "'%s' cannot be mapped executable: %s", out->path,
				 strerror(errno));
	/* A child that removes the probes outlives us, and would keep the file system busy. */
	madvise(page, page_bytes(), MADV_DONTFORK);
	out->page = page;
	return 0;
}

/* By its last slash, or since it is one. */
static bool is_directory(const char *path)
{
	size_t bytes = strlen(path);
	struct stat st;

	return (bytes && path[bytes - 1] == '/') || (!stat(path, &st) && S_ISDIR(st.st_mode));
}

/* Gives a file of another name the one by which perf finds it, too. */
static int name_add(struct jitdump_out *out)
{
	char *slash = strrchr(out->path, '/'), *path = NULL;
	int bytes =
		asprintf(&path, "%.*s/jit-%d.dump", (int)(slash - out->path), out->path, getpid());
	int err = bytes < 0 ? -ENOMEM : 0;

	if (!err && link(out->path, path))
		err = error_set(-errno, "'%s', by which perf finds it, cannot be made: %s", path,
				strerror(errno));
	if (!err) {
		/* perf records the name by which it was opened. */
		int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);

		if (fd < 0)
			err = error_errno();
		descriptor_close(out->fd);
		out->fd = fd;
		snprintf(out->path, sizeof(out->path), "%s", path);
	}
	free(path);
	return err;
}

int jitdump_out_new(struct jitdump_out **ret_out, const char *where, enum outfile_replace replace)
{
	struct jitdump_out *out = calloc(1, sizeof(*out));
	bool is_named = !is_directory(where);
	struct outfile *file;
	char *path = NULL;
	int err = -ENOMEM;

	if (out && (is_named ? (path = strdup(where)) != NULL
			     : asprintf(&path, "%s/jit-%d.dump", where, getpid()) >= 0)) {
		out->fd = -1;
		err = outfile_open(&file, path, replace)
			      ?: file_make(out, file)
			      ?: (is_named ? name_add(out) : 0)
			      ?: page_map(out);
	}
	free(path);
	if (err)
		jitdump_out_free(out);
	else
		*ret_out = out;
	return err;
}

void jitdump_out_free(struct jitdump_out *out)
{
	if (!out)
		return;
	if (out->fd >= 0) {
		if (!out->records)
			unlink(out->path);
		close(out->fd);
	}
	if (out->page)
		munmap(out->page, page_bytes());
	buffer_free(&out->record);
	free(out);
}

/* The record of the code, in out->record. 0, -ENOMEM. */
static int record_make(struct jitdump_out *out, pid_t pid, struct space *space,
		       const struct jitdump_code *code)
{
	char name[PERFMAP_NAME_MAX + 1], escaped[4 * PERFMAP_NAME_MAX + 1];
	struct jitdump_code shown = *code;
	size_t bytes = strnlen(code->name, code->name_bytes < PERFMAP_NAME_MAX ? code->name_bytes
									       : PERFMAP_NAME_MAX);

	memcpy(name, code->name, bytes);
	name[bytes] = '\0';
	/* perf reads a jitdump of the process, too: that record of the code is to win. */
	shown.time_ns--;
	shown.name = escaped;
	shown.name_bytes = text_escape(escaped, sizeof(escaped), name);
	out->record.size = 0;
	int err = jitdump_load_put(&out->record, pid, out->records, &shown)
			  ?: buffer_reserve(&out->record, code->bytes);
	if (err)
		return err;
	unsigned char *at = out->record.data + out->record.size;
	if (!space || space_read(space, code->address, at, code->bytes)) {
		memset(at, 0, code->bytes);
		out->unread++;
	}
	out->record.size += code->bytes;
	return 0;
}

void jitdump_out_add(struct jitdump_out *out, pid_t pid, struct space *space,
		     const struct jitdump_code *code)
{
	if (out->failed)
		return;
	if (code->bytes > JITDUMP_CODE_MAX || out->bytes >= JITDUMP_FILE_MAX) {
		out->left_out++;
		return;
	}
	int err = record_make(out, pid, space, code)
			  ?: descriptor_write(out->fd, out->record.data, out->record.size);
	if (err) {
		/* perf would take what follows a part of a record for records. */
		if (ftruncate(out->fd, (off_t)out->bytes))
			err = error_errno();
		out->failed = err;
		return;
	}
	out->bytes += out->record.size;
	out->records++;
}
