/* SPDX-License-Identifier: Apache-2.0 */
#include "object/perfmap/install.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "object/perfmap/missing.h"
#include "object/perfmap/text.h"
#include "proc/descriptors.h"
#include "proc/tmp_dir.h"
#include "util/buffer.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/outfile.h"
#include "util/regular.h"

/* Times of files and of processes are counted in ticks of the kernel. */
#define TICKS_NS   50000000ull
#define COPY_BYTES 4096 /* see perfmap_text_write() */

static int same_directory(int a, int b)
{
	struct stat first, second;

	return a >= 0 && b >= 0 && !fstat(a, &first) && !fstat(b, &second) &&
	       first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

static void places_init(struct perfmap_places *places, pid_t pid, uint32_t uid)
{
	*places = (struct perfmap_places){.at = {{.directory = -1}, {.directory = -1}},
					  .target = -1,
					  .pid = pid,
					  .uid = uid,
					  .version = UINT64_MAX};
}

static void place_fill(struct perfmap_place *place, int directory, pid_t pid, pid_t owner)
{
	place->directory = directory;
	snprintf(place->name, sizeof(place->name), "perf-%d.map", pid);
	if (owner)
		snprintf(place->shown, sizeof(place->shown), "/proc/%d/root/tmp/%s", owner,
			 place->name);
	else
		snprintf(place->shown, sizeof(place->shown), "/tmp/%s", place->name);
}

/* Writing waits for the file system, whose server may be the target. Takes the descriptor. */
static int local_only(int directory)
{
	int local = directory < 0 ? directory : regular_is_local(directory);

	if (directory < 0 || local > 0)
		return directory;
	close(directory);
	return local < 0
		       ? local
		       : error_set(-EOPNOTSUPP,
				   "its /tmp lies on a file system that others serve (FUSE, NFS): "
				   "nothing is written there");
}

int perfmap_places_open(struct perfmap_places *places, pid_t pid, pid_t ns_pid, uint32_t uid)
{
	int target = local_only(tmp_dir_open(pid)), own = tmp_dir_open(0);
	int err = target < 0 ? target : own;

	if (target >= 0)
		outfile_clean(target);
	if (own >= 0)
		outfile_clean(own);
	places_init(places, pid, uid);
	places->target = target < 0 ? -1 : 0;
	if (target >= 0)
		place_fill(&places->at[0], target, ns_pid, pid);
	if (own >= 0)
		place_fill(&places->at[1], own, pid, 0);
	if (pid == ns_pid && same_directory(target, own)) {
		close(target);
		places->at[0].directory = -1;
		places->target = 1;
	}
	return err < 0 ? err : 0;
}

int perfmap_places_open_own(struct perfmap_places *places, pid_t pid, uint32_t uid)
{
	int own = tmp_dir_open(0);

	places_init(places, pid, uid);
	places->target = own < 0 ? -1 : 1;
	if (own >= 0)
		place_fill(&places->at[1], own, pid, 0);
	return own < 0 ? own : 0;
}

void perfmap_places_close(struct perfmap_places *places)
{
	for (int i = 0; i < 2; i++)
		descriptor_close(places->at[i].directory);
	places->at[0].directory = places->at[1].directory = -1;
}

/*
 * As in linux/posix_acl_xattr.h, which conflicts with C libraries that have their own definitions.
 */
struct acl_entry {
	uint16_t tag, permissions;
	uint32_t id;
};

/*
 * Owner rw, the target's user rw, others r. 0; -EOPNOTSUPP and the like: the file system has no
 * ACLs, and the target's user can only read.
 */
static int acl_set(int fd, uint32_t uid)
{
	enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, MASK = 16, OTHER = 32, READ = 4, WRITE = 2 };
	const struct {
		uint32_t version;
		struct acl_entry entries[5];
	} acl = {2,
		 {{USER_OBJ, READ | WRITE, UINT32_MAX},
		  {USER, READ | WRITE, uid},
		  {GROUP_OBJ, READ, UINT32_MAX},
		  {MASK, READ | WRITE, UINT32_MAX},
		  {OTHER, READ, UINT32_MAX}}};

	return fsetxattr(fd, "system.posix_acl_access", &acl, sizeof(acl), 0) ? error_errno() : 0;
}

static int access_grant(int fd, uint32_t uid)
{
	if (fchmod(fd, 0644))
		return error_errno();
	int err = uid == geteuid() ? 0 : acl_set(fd, uid);
	if (err)
		log_debug("no access entry for user %u: %s", uid, strerror(-err));
	return 0;
}

/*
 * perf of root ignores a map of another user, so the process's file becomes ours, and its user may
 * write to it as before. If it cannot be so, it stays as it is.
 */
static void file_take(int fd, const struct stat *st, uint32_t uid)
{
	int err = 0;

	if (!st->st_uid || st->st_uid == geteuid() || st->st_nlink != 1)
		return;
	err = acl_set(fd, uid);
	if (!err && fchown(fd, geteuid(), (gid_t)-1))
		err = error_errno();
	if (err)
		log_debug("the map stays user %u's: %s", uid, strerror(-err));
}

/* Whether the file contains exactly these bytes. */
static int content_equals(int fd, const struct buffer *text)
{
	char piece[16384];
	size_t at = 0;
	ssize_t n;

	while ((n = pread(fd, piece, sizeof(piece), at)) > 0) {
		if ((size_t)n > text->size - at || memcmp(piece, text->data + at, n))
			return 0;
		at += n;
	}
	return !n && at == text->size;
}

void perfmap_places_continue(struct perfmap_places *places, const struct perfmap_places *before)
{
	places->version = before->version;
	for (int i = 0; i < 2; i++) {
		struct perfmap_place *place = &places->at[i];
		const struct perfmap_place *old = &before->at[i];

		if (!same_directory(place->directory, old->directory))
			continue;
		place->device = old->device;
		place->inode = old->inode;
		place->bytes = old->bytes;
		place->ours = old->ours;
		place->rival = old->rival;
	}
}

void perfmap_places_user(struct perfmap_places *places, uint32_t uid)
{
	if (uid == places->uid)
		return;
	places->uid = uid;
	for (int i = 0; i < 2; i++) {
		struct perfmap_place *place = &places->at[i];
		int fd = place->ours ? tmp_dir_file(place->directory, place->name, uid, O_RDONLY)
				     : -1;
		struct stat st;

		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && st.st_dev == place->device && st.st_ino == place->inode)
			access_grant(fd, uid);
		close(fd);
	}
}

int perfmap_places_stale(const struct perfmap_places *places, const struct stat *file)
{
	return timespec_ns(file->st_mtim) + TICKS_NS < places->begun_ns;
}

static void place_keep(struct perfmap_place *place, const struct stat *st, uint64_t bytes, int ours)
{
	place->device = st->st_dev;
	place->inode = st->st_ino;
	place->bytes = bytes;
	place->ours = ours;
}

struct replaced {
	const struct perfmap_places *places;
	const struct perfmap_place *place;
	int existed;
	struct stat file;
};

static bool is_open(void *context)
{
	const struct replaced *replaced = context;

	return !replaced->existed ||
	       writers_find(replaced->places->pid, replaced->place->name, &replaced->file).count;
}

/* Makes a file, or replaces one of ours. 1; -EBUSY, -EEXIST: the process has opened it; -errno. */
static int place_write(struct perfmap_place *place, const struct buffer *text,
		       struct replaced *replaced)
{
	struct outfile *file;
	struct stat st = {0};
	int err = outfile_open_at(&file, place->directory, place->name, place->shown);

	if (err)
		return err;
	err = access_grant(outfile_fd(file), replaced->places->uid)
	      ?: outfile_write(file, text->data, text->size)
	      ?: (fstat(outfile_fd(file), &st) ? error_errno() : 0);
	if (err) {
		outfile_discard(file);
		return err;
	}
	err = outfile_commit_unless(file, is_open, replaced);
	if (err)
		return err;
	place_keep(place, &st, text->size, 1);
	return 1;
}

static int append_refuse(const struct perfmap_place *place, size_t count, const char *why)
{
	return error_set(-EBUSY, "%s: %zu entries are not added: %s", place->shown, count, why);
}

/* Appends to a file of the process. 1, 0, -errno. */
static int lines_append(struct perfmap_place *place, int fd, struct perfmap_missing *missing,
			const struct writers *writers)
{
	struct buffer *text = &missing->text;
	struct stat st;

	if (writers->at_offset)
		return append_refuse(place, missing->count,
				     "the process writes at an offset of its own, and would "
				     "overwrite them");
	if (missing->partial && writers->count)
		return append_refuse(place, missing->count,
				     "the process is in the middle of a line");
	int err = fstat(fd, &st) ? error_errno() : 0;
	if (!err && (st.st_size + text->size) % COPY_BYTES == 0)
		err = buffer_append(text, "\n", 1);
	err = err ?: descriptor_write(fd, text->data, text->size);
	if (err) {
		/* The disk is full: what the process appends should not continue our last line. */
		descriptor_write(fd, "\n", 1);
		return error_set(err, "%s: %s", place->shown, error_reason(err));
	}
	place->appended_end = lseek(fd, 0, SEEK_CUR);
	place->appended_start = place->appended_end - text->size;
	return 1;
}

static int place_append(struct perfmap_places *places, struct perfmap_place *place,
			const struct perfmap_table *table, struct account *account,
			const struct writers *writers)
{
	int fd = tmp_dir_file(place->directory, place->name, places->uid, O_RDWR | O_APPEND);
	struct perfmap_missing missing = {0};
	struct stat st;

	if (fd < 0)
		return error_set(fd, "%s: %s", place->shown, error_reason(fd));
	int err = perfmap_missing_find(&missing, table, fd, account);
	if (err)
		error_set(err, "%s: %s", place->shown, error_reason(err));
	if (!err && missing.count)
		err = lines_append(place, fd, &missing, writers);
	if (err >= 0 && !fstat(fd, &st)) {
		place->conflicts = missing.conflicts;
		place_keep(place, &st, st.st_size, 0);
	}
	buffer_free(&missing.text);
	close(fd);
	return err;
}

static int place_install(struct perfmap_places *places, struct perfmap_place *place,
			 const struct perfmap_table *table, const struct buffer *text,
			 struct account *account)
{
	int fd = tmp_dir_file(place->directory, place->name, places->uid, O_RDONLY);
	struct replaced replaced = {.places = places, .place = place};
	struct stat *st = &replaced.file;

	if (fd == -ENOENT)
		return place_write(place, text, &replaced);
	if (fd < 0 || fstat(fd, st))
		return error_set(fd < 0 ? fd : error_errno(), "%s: %s", place->shown,
				 error_reason(fd));
	replaced.existed = 1;
	struct writers writers = writers_find(places->pid, place->name, st);
	int ours = place->ours && st->st_dev == place->device && st->st_ino == place->inode &&
		   (uint64_t)st->st_size == place->bytes;
	file_take(fd, st, places->uid);
	if (content_equals(fd, text)) {
		place_keep(place, st, text->size, ours || st->st_uid == geteuid());
		close(fd);
		return 0;
	}
	close(fd);
	if (!writers.count && (ours || perfmap_places_stale(places, st)))
		return place_write(place, text, &replaced);
	return place_append(places, place, table, account, &writers);
}

static int place_try(struct perfmap_places *places, struct perfmap_place *place,
		     const struct perfmap_table *table, const struct buffer *text,
		     struct account *account)
{
	if (place->directory < 0)
		return 0;
	if (place->rival)
		return error_set(-EBUSY,
				 "%s is left alone: process %d has the same id in its namespace "
				 "and the same /tmp, so both write to it, and perf takes the names "
				 "of either for both",
				 place->shown, place->rival);
	int status = place_install(places, place, table, text, account);
	/* The process has opened it in between: it is its file now. */
	if (status == -EBUSY || status == -EEXIST)
		status = place_install(places, place, table, text, account);
	return status;
}

static int text_take(void *context, const char *data, size_t bytes)
{
	return buffer_append(context, data, bytes);
}

/* Whether the files are still there and have not become shorter. */
static int all_installed(const struct perfmap_places *places)
{
	struct stat st;

	for (int i = 0; i < 2; i++) {
		const struct perfmap_place *place = &places->at[i];

		if (place->directory >= 0 &&
		    (fstatat(place->directory, place->name, &st, AT_SYMLINK_NOFOLLOW) ||
		     st.st_dev != place->device || st.st_ino != place->inode ||
		     (uint64_t)st.st_size < place->bytes))
			return 0;
	}
	return 1;
}

int perfmap_install(struct perfmap_places *places, const struct perfmap_table *table,
		    struct account *account)
{
	uint64_t version = perfmap_table_version(table);
	struct buffer text = {0};
	int done = 0, err;

	error_clear();
	if (version == places->version && all_installed(places))
		return 0;
	err = perfmap_text_write(table, text_take, &text);
	for (int i = 0; i < 2 && err != -ENOMEM; i++) {
		int status = place_try(places, &places->at[i], table, &text, account);

		if (status > 0)
			done = 1;
		else if (!err)
			err = status;
	}
	buffer_free(&text);
	if (!err)
		places->version = version;
	return err ?: done;
}
