/* SPDX-License-Identifier: Apache-2.0 */
#include "object/elf/elf_debug.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include "object/elf/elf_section.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/regular.h"

#define DEBUG_ROOT "/usr/lib/debug"
#define DWZ        "/.dwz/"
/* largest debug file whose checksum is computed, bytes */
#define CHECKSUM_MAX ((off_t)512 << 20)
/* the same where a target chooses the size: in an untrusted root, and beside its own file */
#define CHECKSUM_UNTRUSTED_MAX ((off_t)64 << 20)
#define LINK_MAX               8192u /* bytes of .gnu_debuglink or .gnu_debugaltlink */
#define PIECE_BYTES            (64u * 1024)

/* Where debug files are searched. */
struct debug_dir {
	int common; /* 1: the file is the common part of several debug files */
	/* descriptor of an untrusted root, within which names are resolved; -1: our root */
	int root;
	const char *base; /* directory */
	/* 1: the debug file may also lie beside the file, which the target may have put there */
	int beside;
};

/*
 * Returns a descriptor of a regular file, or -errno. Beside a target's file, a link could lead to a
 * file that its owner may not read.
 */
static int open_regular(const struct debug_dir *dir, const char *name)
{
	if (dir->root >= 0)
		return regular_open(dir->root, name, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	return regular_open(AT_FDCWD, name, dir->beside ? RESOLVE_NO_SYMLINKS : 0);
}

static int open_elf(struct elf_debug *out, const struct debug_dir *dir, const char *name)
{
	uint64_t bytes;

	out->fd = open_regular(dir, name);
	if (out->fd < 0)
		return out->fd;
	int err = dir->common ? elf_section_begin_common(&out->elf, out->fd)
			      : elf_section_begin(&out->elf, out->fd, &bytes);
	if (err)
		close(out->fd);
	return err;
}

void elf_debug_close(struct elf_debug *debug)
{
	elf_end(debug->elf);
	close(debug->fd);
}

/* Opens the file if it has the build id. */
static int open_same(struct elf_debug *out, const struct debug_dir *dir, const char *name,
		     const char *build_id)
{
	char found[ELF_BUILD_ID_HEX_MAX];
	struct elf_debug debug;
	int err = open_elf(&debug, dir, name);

	if (err)
		return err;
	elf_section_build_id(debug.elf, found);
	if (strcmp(found, build_id)) {
		log_debug("%s: another build id than expected", name);
		elf_debug_close(&debug);
		return -ENOENT;
	}
	*out = debug;
	return 0;
}

static int open_by_build_id(struct elf_debug *out, const struct debug_dir *dir,
			    const char *build_id)
{
	char *name;

	if (strlen(build_id) < 4)
		return -ENOENT;
	if (asprintf(&name, "%s/.build-id/%.2s/%s.debug", dir->base, build_id, build_id + 2) < 0)
		return -ENOMEM;
	int err = open_same(out, dir, name, build_id);
	free(name);
	return err;
}

/*
 * Opens what debuginfod clients (debuginfod-find, gdb) have fetched: debuginfod_find_debuginfo(3),
 * "CACHE".
 */
static int open_fetched(struct elf_debug *out, const char *build_id, int common)
{
	static const struct {
		const char *variable, *below;
	} caches[] = {{"DEBUGINFOD_CACHE_PATH", ""},
		      {"XDG_CACHE_HOME", "/debuginfod_client"},
		      {"HOME", "/.cache/debuginfod_client"}};
	const struct debug_dir ours = {.root = -1, .common = common};
	int err = -ENOENT;

	if (strlen(build_id) < 4)
		return -ENOENT;
	for (size_t i = 0; err && i < ARRAY_SIZE(caches); i++) {
		const char *value = getenv(caches[i].variable);
		char *name;

		if (!value || !value[0])
			continue;
		if (asprintf(&name, "%s%s/%s/debuginfo", value, caches[i].below, build_id) < 0)
			return -ENOMEM;
		err = open_same(out, &ours, name, build_id);
		free(name);
	}
	return err;
}

/* .gnu_debuglink: file name, NUL, padding to four bytes, CRC-32. The name is borrowed from elf. */
static int read_link(Elf *elf, const char **name, uint32_t *checksum)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_name(elf, ".gnu_debuglink", &header);
	Elf_Data *data =
		section && header.sh_size <= LINK_MAX ? elf_section_data(section, &header) : NULL;

	if (!data || !data->d_size)
		return -ENOENT;
	*name = data->d_buf;
	size_t length = strnlen(*name, data->d_size);
	size_t at = (length + 4) & ~(size_t)3;
	if (length > data->d_size || at + sizeof(*checksum) > data->d_size)
		return -ENOENT;
	/* Only a plain file name is accepted: anything else could leave the directory. */
	if (!length || strchr(*name, '/') || !strcmp(*name, ".") || !strcmp(*name, ".."))
		return -ENOENT;
	memcpy(checksum, *name + at, sizeof(*checksum));
	return 0;
}

static bool has_checksum(int fd, uint32_t expected, off_t bytes_max)
{
	uLong checksum = crc32(0, NULL, 0);
	off_t offset = 0;
	struct stat st;
	ssize_t n = 0;

	if (fstat(fd, &st) || st.st_size > bytes_max)
		return 0;
	_cleanup_free_ unsigned char *piece = malloc(PIECE_BYTES);
	while (piece && offset <= bytes_max) {
		n = pread(fd, piece, PIECE_BYTES, offset);
		if (n <= 0)
			break;
		checksum = crc32(checksum, piece, (uInt)n);
		offset += n;
	}
	return offset && n == 0 && checksum == expected;
}

/* Is it the file that the link means? One that is too large to be summed is, by its build id. */
static bool is_linked(const struct elf_debug *debug, uint32_t checksum, off_t bytes_max,
		      const char *build_id)
{
	char found[ELF_BUILD_ID_HEX_MAX];
	struct stat st;

	if (has_checksum(debug->fd, checksum, bytes_max))
		return 1;
	elf_section_build_id(debug->elf, found);
	return !fstat(debug->fd, &st) && st.st_size > bytes_max && *found &&
	       !strcmp(found, build_id);
}

/* Opens the file in a folder that ends with below, of which bytes count. */
static int open_linked(struct elf_debug *out, const struct debug_dir *dir, Elf *elf,
		       const char *build_id, const char *folder, int bytes, const char *below)
{
	off_t bytes_max = dir->root < 0 && !dir->beside ? CHECKSUM_MAX : CHECKSUM_UNTRUSTED_MAX;
	struct elf_debug debug;
	uint32_t checksum;
	const char *link;
	char *name;

	if (read_link(elf, &link, &checksum))
		return -ENOENT;
	if (asprintf(&name, "%s%.*s%s/%s", dir->beside ? "" : dir->base, bytes, folder, below,
		     link) < 0)
		return -ENOMEM;
	int err = open_elf(&debug, dir, name);
	if (!err && !is_linked(&debug, checksum, bytes_max, build_id)) {
		log_debug("%s: another checksum than .gnu_debuglink says", name);
		elf_debug_close(&debug);
		err = -ENOENT;
	}
	if (!err)
		*out = debug;
	free(name);
	return err;
}

/* In the order of gdb: beside the file, in .debug/, in the directory of debug files. */
static int open_by_link(struct elf_debug *out, const struct debug_dir *dir, Elf *elf,
			const char *build_id, const char *path)
{
	struct debug_dir far = *dir;
	const char *slash = strrchr(path, '/');
	int bytes, err = -ENOENT;

	/* The target chooses the path: it must not leave the root. */
	if (path[0] != '/' || strstr(path, "/../"))
		return -ENOENT;
	bytes = (int)(slash - path);
	far.beside = 0;
	if (dir->beside)
		err = open_linked(out, dir, elf, build_id, path, bytes, "");
	if (dir->beside && err)
		err = open_linked(out, dir, elf, build_id, path, bytes, "/.debug");
	return err ? open_linked(out, &far, elf, build_id, path, bytes, "") : 0;
}

int elf_debug_open(struct elf_debug *out, Elf *elf, const char *build_id, const char *path,
		   const char *root)
{
	const struct debug_dir dir = {
		.root = -1, .base = root ? root : DEBUG_ROOT, .beside = !root};
	int err = open_by_build_id(out, &dir, build_id);

	if (err)
		err = open_by_link(out, &dir, elf, build_id, path);
	if (err && !root)
		err = open_fetched(out, build_id, 0);
	return err ? -ENOENT : 0;
}

int elf_debug_open_in(struct elf_debug *out, Elf *elf, const char *build_id, const char *path,
		      int root)
{
	const struct debug_dir dir = {.root = root, .base = DEBUG_ROOT, .beside = 1};
	int err = open_by_build_id(out, &dir, build_id);

	if (err)
		err = open_by_link(out, &dir, elf, build_id, path);
	return err ? -ENOENT : 0;
}

/* .gnu_debugaltlink: file name, NUL, build id. The name is borrowed from elf. */
static int read_alternate_link(Elf *elf, const char **name, char build_id[ELF_BUILD_ID_HEX_MAX])
{
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_name(elf, ".gnu_debugaltlink", &header);
	Elf_Data *data =
		section && header.sh_size <= LINK_MAX ? elf_section_data(section, &header) : NULL;

	if (!data || !data->d_size)
		return -ENOENT;
	*name = data->d_buf;
	size_t length = strnlen(*name, data->d_size) + 1;
	if (length >= data->d_size || data->d_size - length > ELF_BUILD_ID_MAX)
		return -ENOENT;
	for (size_t i = 0; i < data->d_size - length; i++)
		sprintf(build_id + 2 * i, "%02x", (unsigned char)(*name)[length + i]);
	return 0;
}

int elf_debug_alternate_id(Elf *elf, char build_id[ELF_BUILD_ID_HEX_MAX])
{
	const char *name;

	return read_alternate_link(elf, &name, build_id);
}

static int open_below_dwz(struct elf_debug *out, const struct debug_dir *dir, const char *link,
			  const char *build_id)
{
	const char *below = strstr(link, DWZ);
	char *name;

	if (!below || strstr(below, "/../") || asprintf(&name, "%s%s", dir->base, below) < 0)
		return -ENOENT;
	int err = open_same(out, dir, name, build_id);
	free(name);
	return err;
}

int elf_debug_open_alternate(struct elf_debug *out, Elf *elf, const char *base, int root)
{
	const struct debug_dir dir = {.common = 1, .root = root, .base = base ? base : DEBUG_ROOT};
	char build_id[ELF_BUILD_ID_HEX_MAX];
	const char *link;

	if (read_alternate_link(elf, &link, build_id))
		return -ENOENT;
	int err = open_by_build_id(out, &dir, build_id);
	/*
	 * Distributions install it as /usr/lib/debug/.dwz/NAME and reference it by this path or by
	 * a relative one.
	 */
	if (err)
		err = open_below_dwz(out, &dir, link, build_id);
	if (err && !base && root < 0)
		err = open_fetched(out, build_id, 1);
	return err ? -ENOENT : 0;
}
