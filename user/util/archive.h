/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several files in one, which tar(1) can unpack: POSIX.1-1988's ustar with regular files only. The
 * first member is ARCHIVE_FIRST, by which such a file is known. One that is read is hostile.
 */
#pragma once

#include <stdint.h>

#include "util/infile.h"
#include "util/outfile.h"

#define ARCHIVE_FIRST   "evidence.json"
#define ARCHIVE_NAME    100u /* bytes of a member's name, with NUL */
#define ARCHIVE_MEMBERS 64u  /* at most */

struct archive_member {
	char name[ARCHIVE_NAME];
	uint64_t bytes;
	uint64_t offset; /* in the file, of its content */
};

/* Adds a member with the content of fd from its beginning. time: seconds since 1970. 0, -errno. */
int archive_add(struct outfile *file, const char *name, int fd, uint64_t time);
/* Ends it. The caller commits the file. 0, -errno. */
int archive_end(struct outfile *file);

/* Does the file begin as an archive? Its first 512 bytes, or fewer if it is shorter. Pure. */
bool archive_begins(const unsigned char *data, size_t bytes);
/*
 * Lists at most ARCHIVE_MEMBERS members. Returns their number; 0: it is no archive; -EINVAL: it is
 * damaged (error_set); -errno.
 */
int archive_list(int fd, struct archive_member members[ARCHIVE_MEMBERS]);
/*
 * infile_open() of a member if the file is an archive, else of the file. A path FILE:MEMBER names
 * another member. -ENOENT: the archive has no such member (error_set); -errno.
 */
int archive_infile(struct infile *file, const char *path, const char *member);
