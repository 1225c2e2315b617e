/* SPDX-License-Identifier: Apache-2.0 */
#include "util/archive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"

#define BLOCK 512u
/* Beyond it the size is a binary number, as GNU tar and POSIX's pax tools read it. */
#define OCTAL_MOST 077777777777ull

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], time[12], sum[8], type, link[100],
		magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};

_Static_assert(sizeof(struct header) == BLOCK, "a header is a block");

/* The sum of a header's bytes, with blanks for the sum itself. */
static unsigned int header_sum(const struct header *header)
{
	const unsigned char *bytes = (const unsigned char *)header;
	unsigned int sum = 8 * ' ';

	for (size_t i = 0; i < BLOCK; i++)
		sum += bytes[i];
	for (size_t i = 0; i < sizeof(header->sum); i++)
		sum -= (unsigned char)header->sum[i];
	return sum;
}

static void size_set(struct header *header, uint64_t bytes)
{
	if (bytes <= OCTAL_MOST) {
		snprintf(header->size, sizeof(header->size), "%011" PRIo64, bytes);
		return;
	}
	header->size[0] = (char)0x80;
	for (size_t i = 0; i < 8; i++)
		header->size[4 + i] = (char)(bytes >> 8 * (7 - i));
}

/* UINT64_MAX: it is no number. */
static uint64_t size_get(const struct header *header)
{
	uint64_t bytes = 0;

	if ((unsigned char)header->size[0] == 0x80) {
		for (size_t i = 4; i < sizeof(header->size); i++)
			bytes = bytes << 8 | (unsigned char)header->size[i];
		return bytes;
	}
	for (size_t i = 0; i < sizeof(header->size) && header->size[i]; i++) {
		if (header->size[i] < '0' || header->size[i] > '7')
			return header->size[i] == ' ' ? bytes : UINT64_MAX;
		bytes = bytes * 8 + (uint64_t)(header->size[i] - '0');
	}
	return bytes;
}

static int padding_write(struct outfile *file, uint64_t bytes)
{
	static const char zeros[BLOCK];

	return bytes % BLOCK ? outfile_write(file, zeros, BLOCK - bytes % BLOCK) : 0;
}

int archive_add(struct outfile *file, const char *name, int fd, uint64_t time)
{
	struct header header = {.mode = "0000600",
				.uid = "0000000",
				.gid = "0000000",
				.type = '0',
				.magic = "ustar",
				.version = {'0', '0'}};
	char data[1 << 16], sum[8];
	struct stat st;
	uint64_t at = 0;

	if (fstat(fd, &st))
		return error_errno();
	snprintf(header.name, sizeof(header.name), "%s", name);
	size_set(&header, (uint64_t)st.st_size);
	snprintf(header.time, sizeof(header.time), "%011" PRIo64, (uint64_t)(time & OCTAL_MOST));
	snprintf(sum, sizeof(sum), "%06o", header_sum(&header));
	memcpy(header.sum, sum, sizeof(sum));
	header.sum[7] = ' ';
	int err = outfile_write(file, &header, sizeof(header));
	while (!err && at < (uint64_t)st.st_size) {
		uint64_t left = (uint64_t)st.st_size - at;
		ssize_t got = pread(fd, data, left < sizeof(data) ? left : sizeof(data), (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? error_errno() : error_set(-EIO, "it is being changed");
		err = outfile_write(file, data, (size_t)got);
		at += (uint64_t)got;
	}
	return err ?: padding_write(file, at);
}

int archive_end(struct outfile *file)
{
	static const char zeros[2 * BLOCK];

	return outfile_write(file, zeros, sizeof(zeros));
}

bool archive_begins(const unsigned char *data, size_t bytes)
{
	const struct header *header = (const struct header *)data;

	return bytes >= BLOCK && !memcmp(header->magic, "ustar", 6) &&
	       !strncmp(header->name, ARCHIVE_FIRST, sizeof(header->name));
}

/* The header at an offset: 1; 0: the archive ends there; -errno. */
static int header_read(int fd, uint64_t offset, struct header *header)
{
	ssize_t got = pread(fd, header, BLOCK, (off_t)offset);

	if (got < 0)
		return error_errno();
	if (got != BLOCK)
		return error_set(-EINVAL, "it ends within its data");
	if (!header->name[0])
		return 0;
	if (memcmp(header->magic, "ustar", 6) || header->type != '0' ||
	    strtoul(header->sum, NULL, 8) != header_sum(header) ||
	    !memchr(header->name, 0, sizeof(header->name)))
		return error_set(-EINVAL, "a member's header is damaged");
	return 1;
}

int archive_list(int fd, struct archive_member members[ARCHIVE_MEMBERS])
{
	uint64_t offset = 0;
	struct header header;
	struct stat st;
	int count = 0, found;

	if (fstat(fd, &st))
		return error_errno();
	if (pread(fd, &header, BLOCK, 0) != BLOCK ||
	    !archive_begins((const unsigned char *)&header, BLOCK))
		return 0;
	while (count < (int)ARCHIVE_MEMBERS && (found = header_read(fd, offset, &header)) > 0) {
		struct archive_member *member = &members[count++];

		*member = (struct archive_member){.bytes = size_get(&header),
						  .offset = offset + BLOCK};
		memcpy(member->name, header.name, sizeof(member->name));
		if (member->bytes > (uint64_t)st.st_size ||
		    member->offset + member->bytes > (uint64_t)st.st_size)
			return error_set(-EINVAL, "it ends within its data");
		offset = member->offset + (member->bytes + BLOCK - 1) / BLOCK * BLOCK;
	}
	return count < (int)ARCHIVE_MEMBERS && found < 0 ? found : count;
}

/* Moves to the member, if the file is an archive. 0; -ENOENT, -errno. */
static int member_seek(struct infile *file, const char *member)
{
	struct archive_member members[ARCHIVE_MEMBERS];
	int count = archive_list(file->fd, members);

	/* What cannot be read at an offset, such as a pipe, is no archive. */
	if (count == 0 || count == -ESPIPE)
		return 0;
	for (int i = 0; i < count; i++) {
		if (strcmp(members[i].name, member) != 0)
			continue;
		infile_limit(file, members[i].bytes);
		return lseek(file->fd, (off_t)members[i].offset, SEEK_SET) < 0 ? error_errno() : 0;
	}
	return count < 0 ? count
			 : error_set(-ENOENT, "it has no %s; 'tracer report' shows what it has",
				     member);
}

int archive_infile(struct infile *file, const char *path, const char *member)
{
	const char *colon = strrchr(path, ':');
	int err = infile_open(file, path);

	if (err == -ENOENT && colon) {
		_cleanup_free_ char *archive = strndup(path, (size_t)(colon - path));

		err = archive ? infile_open(file, archive) : -ENOMEM;
		member = colon + 1;
	}
	if (err)
		return err;
	err = member_seek(file, member);
	if (err)
		infile_close(file);
	return err;
}
