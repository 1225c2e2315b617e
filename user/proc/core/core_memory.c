/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proc/core/core_notes.h"
#include "util/array.h"
#include "util/error.h"
#include "util/regular.h"
#include "util/sorted.h"

#define PAGE 4096u

size_t core_map_among(const struct core_file *core, size_t count, uint64_t address)
{
	size_t at = SORTED_ABOVE(core->maps.entries, count, end, address);

	return at < count && core->maps.entries[at].start <= address ? at : count;
}

size_t core_map_find(const struct core_file *core, uint64_t address)
{
	return core_map_among(core, core->maps.count, address);
}

/* Reads exactly bytes. 0, -EFAULT. */
static int file_read(int fd, uint64_t at, uint8_t *out, size_t bytes)
{
	while (bytes) {
		ssize_t got = at > INT64_MAX ? -1 : pread(fd, out, bytes, (off_t)at);

		if (got < 0 && errno == EINTR && at <= INT64_MAX)
			continue;
		if (got <= 0)
			return -EFAULT;
		at += (uint64_t)got;
		out += got;
		bytes -= (size_t)got;
	}
	return 0;
}

/*
 * Whether the first page of a file, of which the core has a copy, is still that of the file: it has
 * the build id, and where everything is. Without the copy nothing can be compared.
 */
static int is_same(const struct core_file *core, const struct process_map *map, int fd)
{
	uint8_t meant[PAGE], found[PAGE];

	for (size_t i = 0; i < core->maps.count; i++) {
		const struct process_map *other = &core->maps.entries[i];

		if (other->inode != map->inode || other->offset || other->writable ||
		    core->contents[i].stored < PAGE ||
		    file_read(core->fd, core->contents[i].at, meant, PAGE))
			continue;
		memset(found, 0, sizeof(found));
		if (pread(fd, found, PAGE, 0) < 0)
			return 0;
		return !memcmp(meant, found, PAGE);
	}
	return 1;
}

/* Opens a name as process_map_open() does, but follows links within the root. */
static int path_open(const struct core_file *core, const char *path)
{
	int root = open(core->sysroot, O_PATH | O_DIRECTORY | O_CLOEXEC), fd;

	if (root < 0)
		return -errno;
	fd = regular_open(root, path, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	close(root);
	return fd;
}

/* A descriptor, -errno without a reason. */
static int file_open(const struct core_file *core, const struct process_map *map)
{
	int fd = path_open(core, map->path);

	if (fd >= 0 && !is_same(core, map, fd)) {
		close(fd);
		return -ESTALE;
	}
	return fd;
}

int core_map_open(struct core_file *core, const struct process_map *map)
{
	if (!map->inode)
		return error_set(-EINVAL, "no file behind this memory");
	int fd = file_open(core, map);
	if (fd >= 0)
		return fd;
	if (!core->absent) {
		core->absent = strdup(map->path);
		core->absent_err = fd;
	}
	return error_set(fd, fd == -ESTALE ? "%s is another file now" : "%s cannot be opened",
			 map->path);
}

static int mapped_read(struct core_file *core, const struct process_map *map, uint64_t from,
		       uint8_t *out, size_t bytes)
{
	if (!core->last || core->last->inode != map->inode) {
		if (core->last_fd >= 0)
			close(core->last_fd);
		core->last = map;
		core->last_fd = core_map_open(core, map);
	}
	if (core->last_fd < 0 || from > UINT64_MAX - map->offset)
		return -EFAULT;
	return file_read(core->last_fd, map->offset + from, out, bytes);
}

int core_put(struct core_file *core, uint64_t address, const char *text)
{
	size_t at = SORTED_ABOVE(core->texts, core->text_count, address, address);
	int err = ARRAY_GROW(core->texts, core->text_capacity, core->text_count);

	if (err)
		return err;
	if (at && core->texts[at - 1].address == address) {
		at--;
	} else {
		memmove(&core->texts[at + 1], &core->texts[at],
			(core->text_count - at) * sizeof(*core->texts));
		core->text_count++;
	}
	core->texts[at].address = address;
	snprintf(core->texts[at].text, CORE_TEXT, "%s", text);
	return 0;
}

/* Whether the page has a part of a text. */
static int page_has_text(const struct core_file *core, uint64_t page)
{
	size_t at = SORTED_ABOVE(core->texts, core->text_count, address, page - CORE_TEXT);

	return at < core->text_count && core->texts[at].address < page + PAGE;
}

/* Reads texts, and zeros around them. 0; -EFAULT: not all of the pages have one. */
static int texts_read(const struct core_file *core, uint64_t address, uint8_t *out, size_t bytes)
{
	size_t at = SORTED_ABOVE(core->texts, core->text_count, address, address - CORE_TEXT);

	for (uint64_t page = address & ~(uint64_t)(PAGE - 1); page < address + bytes; page += PAGE)
		if (!page_has_text(core, page))
			return -EFAULT;
	memset(out, 0, bytes);
	for (; at < core->text_count && core->texts[at].address < address + bytes; at++)
		for (size_t i = 0; core->texts[at].text[i]; i++) {
			uint64_t into = core->texts[at].address + i - address;

			if (into < bytes)
				out[into] = (uint8_t)core->texts[at].text[i];
		}
	return 0;
}

/* The part of a map that comes from one place: *bytes is cut to it. */
static int part_read(struct core_file *core, size_t number, uint64_t from, uint8_t *out,
		     uint64_t *bytes)
{
	const struct process_map *map = &core->maps.entries[number];
	const struct core_content *content = &core->contents[number];

	if (from < content->stored) {
		if (*bytes > content->stored - from)
			*bytes = content->stored - from;
		return file_read(core->fd, content->at + from, out, *bytes);
	}
	/* What the core was to have differs from the file. */
	if (from < content->meant || !map->inode)
		return -EFAULT;
	return mapped_read(core, map, from, out, *bytes)
		       ? texts_read(core, map->start + from, out, *bytes)
		       : 0;
}

int core_read(struct core_file *core, uint64_t address, void *out, size_t bytes)
{
	uint8_t *to = out;

	while (bytes) {
		size_t number = core_map_find(core, address);
		const struct process_map *map = &core->maps.entries[number];
		uint64_t part = bytes;

		if (number == core->maps.count)
			return -EFAULT;
		if (part > map->end - address)
			part = map->end - address;
		int err = part_read(core, number, address - map->start, to, &part);
		if (err)
			return err;
		address += part;
		to += part;
		bytes -= part;
	}
	return 0;
}
