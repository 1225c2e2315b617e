/* SPDX-License-Identifier: Apache-2.0 */
#include "perfmap/install.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/outfile.h"
#include "perfmap/text.h"
#include "process/tmp_dir.h"

static int same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
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

int perfmap_places_open(struct perfmap_places *places, pid_t pid, pid_t ns_pid, uint32_t uid)
{
	struct stat theirs, ours;
	int target = tmp_dir_open(pid), own = tmp_dir_open(0);
	int err = target < 0 ? target : own;

	if (target >= 0)
		outfile_clean(target);
	if (own >= 0)
		outfile_clean(own);
	*places = (struct perfmap_places){.at = {{.directory = -1}, {.directory = -1}},
					  .target = target < 0 ? -1 : 0,
					  .uid = uid,
					  .version = UINT64_MAX};
	if (target >= 0)
		place_fill(&places->at[0], target, ns_pid, pid);
	if (own >= 0)
		place_fill(&places->at[1], own, pid, 0);
	if (target >= 0 && own >= 0 && pid == ns_pid && !fstat(target, &theirs) &&
	    !fstat(own, &ours) && same_file(&theirs, &ours)) {
		close(target);
		places->at[0].directory = -1;
		places->target = 1;
	}
	return err < 0 ? err : 0;
}

int perfmap_places_open_own(struct perfmap_places *places, pid_t pid, uint32_t uid)
{
	int own = tmp_dir_open(0);

	*places = (struct perfmap_places){.at = {{.directory = -1}, {.directory = -1}},
					  .target = own < 0 ? -1 : 1,
					  .uid = uid,
					  .version = UINT64_MAX};
	if (own >= 0)
		place_fill(&places->at[1], own, pid, 0);
	return own < 0 ? own : 0;
}

void perfmap_places_close(struct perfmap_places *places)
{
	for (int i = 0; i < 2; i++)
		if (places->at[i].directory >= 0)
			close(places->at[i].directory);
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
 * Owner rw, the target's user rw, others r. On a file system without ACLs the target's user can
 * only read.
 */
static int access_grant(int fd, uint32_t uid)
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

	if (fchmod(fd, 0644))
		return -errno;
	if (uid != geteuid() && fsetxattr(fd, "system.posix_acl_access", &acl, sizeof(acl), 0))
		log_debug("no access entry for user %u: %s", uid, strerror(errno));
	return 0;
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

static int place_write(struct perfmap_place *place, const struct buffer *text, uint32_t uid)
{
	struct outfile *file;
	int err = outfile_open_at(&file, place->directory, place->name, place->shown);

	if (err)
		return err;
	err = access_grant(outfile_fd(file), uid);
	if (!err)
		err = outfile_write(file, text->data, text->size);
	if (!err)
		err = fstat(outfile_fd(file), &place->installed) ? -errno : 0;
	if (err) {
		outfile_discard(file);
		place->installed.st_ino = 0;
		return err;
	}
	return outfile_commit(file) ?: 1;
}

static int place_install(struct perfmap_place *place, const struct buffer *text, uint32_t uid)
{
	int fd = tmp_dir_file(place->directory, place->name, uid), same = 0;
	struct stat st;

	if (fd < 0 && fd != -ENOENT)
		return error_set(fd, "%s: %s", place->shown, error_reason(fd));
	if (fd >= 0) {
		same = !fstat(fd, &st) && (!st.st_uid || st.st_uid == geteuid()) &&
		       content_equals(fd, text);
		if (same)
			place->installed = st;
		close(fd);
	}
	return same ? 0 : place_write(place, text, uid);
}

static int text_take(void *context, const char *data, size_t bytes)
{
	return buffer_append(context, data, bytes);
}

/* Whether our files are still there and were not replaced. */
static int all_installed(const struct perfmap_places *places)
{
	struct stat st;

	for (int i = 0; i < 2; i++) {
		const struct perfmap_place *place = &places->at[i];

		if (place->directory >= 0 &&
		    (fstatat(place->directory, place->name, &st, AT_SYMLINK_NOFOLLOW) ||
		     !same_file(&st, &place->installed)))
			return 0;
	}
	return 1;
}

int perfmap_install(struct perfmap_places *places, const struct perfmap_table *table)
{
	uint64_t version = perfmap_table_version(table);
	struct buffer text = {0};
	int done = 0, err;

	error_clear();
	if (version == places->version && all_installed(places))
		return 0;
	err = perfmap_text_write(table, text_take, &text);
	for (int i = 0; i < 2 && err != -ENOMEM; i++) {
		int status = places->at[i].directory >= 0
				     ? place_install(&places->at[i], &text, places->uid)
				     : 0;

		if (status > 0)
			done = 1;
		else if (!err)
			err = status;
	}
	buffer_free(&text);
	if (!err)
		places->version = version;
	return err ? err : done;
}
