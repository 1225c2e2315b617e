/* SPDX-License-Identifier: Apache-2.0 */
#include "target/elf_debug.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.h"
#include "target/elf_section.h"

#define CHECKSUM_MAX ((off_t)2 << 30) /* bytes of a debug file that are worth reading for its checksum */
#define PIECE_BYTES  (64u * 1024)

static int open_elf(struct elf_debug *out, const char *name)
{
	uint64_t bytes;
	struct stat st;
	int err;

	out->fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (out->fd < 0)
		return -errno;
	err = fstat(out->fd, &st) ? -errno : 0;
	if (!err)
		err = S_ISREG(st.st_mode) ? elf_section_begin(&out->elf, out->fd, &bytes) : -EINVAL;
	if (err)
		close(out->fd);
	return err;
}

void elf_debug_close(struct elf_debug *debug)
{
	elf_end(debug->elf);
	close(debug->fd);
}

static int open_by_build_id(struct elf_debug *out, const char *build_id, const char *root)
{
	char found[ELF_BUILD_ID_HEX_MAX];
	struct elf_debug debug;
	char *name;
	int err;

	if (strlen(build_id) < 4)
		return -ENOENT;
	if (asprintf(&name, "%s/.build-id/%.2s/%s.debug", root, build_id, build_id + 2) < 0)
		return -ENOMEM;
	err = open_elf(&debug, name);
	if (!err) {
		elf_section_build_id(debug.elf, found);
		if (strcmp(found, build_id)) {
			log_debug("%s: another build id than its name", name);
			elf_debug_close(&debug);
			err = -ENOENT;
		} else
			*out = debug;
	}
	free(name);
	return err;
}

/* .gnu_debuglink: file name, NUL, padding to four bytes, CRC-32. The name is borrowed from elf. */
static int read_link(Elf *elf, const char **name, uint32_t *checksum)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_name(elf, ".gnu_debuglink", &header);
	Elf_Data *data = section ? elf_section_data(section, &header) : NULL;
	size_t length, at;

	if (!data || !data->d_size)
		return -ENOENT;
	*name = data->d_buf;
	length = strnlen(*name, data->d_size);
	at = (length + 4) & ~(size_t)3;
	if (length > data->d_size || at + sizeof(*checksum) > data->d_size)
		return -ENOENT;
	/* Anything but a plain name would lead out of the directory. */
	if (!length || strchr(*name, '/') || !strcmp(*name, ".") || !strcmp(*name, ".."))
		return -ENOENT;
	memcpy(checksum, *name + at, sizeof(*checksum));
	return 0;
}

static int has_checksum(int fd, uint32_t expected)
{
	unsigned char *piece = malloc(PIECE_BYTES);
	uLong checksum = crc32(0, NULL, 0);
	off_t offset = 0;
	ssize_t n = 0;

	while (piece && offset < CHECKSUM_MAX) {
		n = pread(fd, piece, PIECE_BYTES, offset);
		if (n <= 0)
			break;
		checksum = crc32(checksum, piece, (uInt)n);
		offset += n;
	}
	free(piece);
	return offset && n == 0 && checksum == expected;
}

static int open_by_link(struct elf_debug *out, Elf *elf, const char *path, const char *root)
{
	const char *slash = strrchr(path, '/');
	struct elf_debug debug;
	uint32_t checksum;
	const char *link;
	char *name;
	int err;

	/* The path is the target's word: it must not climb out of the root. */
	if (path[0] != '/' || strstr(path, "/../") || read_link(elf, &link, &checksum))
		return -ENOENT;
	if (asprintf(&name, "%s%.*s/%s", root, (int)(slash - path), path, link) < 0)
		return -ENOMEM;
	err = open_elf(&debug, name);
	if (!err && !has_checksum(debug.fd, checksum)) {
		log_debug("%s: another checksum than .gnu_debuglink of %s", name, path);
		elf_debug_close(&debug);
		err = -ENOENT;
	}
	if (!err)
		*out = debug;
	free(name);
	return err;
}

int elf_debug_open(struct elf_debug *out, Elf *elf, const char *build_id, const char *path, const char *root)
{
	int err = open_by_build_id(out, build_id, root);

	if (err)
		err = open_by_link(out, elf, path, root);
	return err ? -ENOENT : 0;
}
