/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/statics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "object/elf/elf_file.h"
#include "proc/memory.h"
#include "proc/process.h"
#include "util/cleanup.h"
#include "util/sorted.h"

#define PAGE        SPACE_PAGE
#define PIECE_PAGES 64u
#define MORE_PAGES  1u                   /* behind a piece, for the overlap */
#define PAGES_MAX   ((64u << 20) / PAGE) /* that are read */

static bool is_same_file(const struct process_map *a, const struct process_map *b)
{
	return a->inode == b->inode && a->device_major == b->device_major &&
	       a->device_minor == b->device_minor;
}

/* .bss has no name, unless the program's break follows it without a gap. */
static bool is_behind(const struct process_map *map, const struct statics *statics)
{
	if (map->start != statics->end || !map->writable)
		return false;
	return is_same_file(map, statics->file) ||
	       (!map->inode && (!map->path[0] || !strcmp(map->path, "[heap]")));
}

bool statics_next(const struct process_maps *maps, size_t *at, struct statics *out)
{
	for (; *at < maps->count; ++*at) {
		const struct process_map *map = &maps->entries[*at];

		if (!map->inode || !map->writable || map->shared)
			continue;
		*out = (struct statics){map->start, map->end, map};
		while (++*at < maps->count && is_behind(&maps->entries[*at], out))
			out->end = maps->entries[*at].end;
		return true;
	}
	return false;
}

bool statics_is_of(const struct statics *statics, const struct process_map *map)
{
	return is_same_file(statics->file, map);
}

const char *statics_file_name(const struct statics *statics)
{
	const char *name = strrchr(statics->file->path, '/');

	return name ? name + 1 : statics->file->path;
}

/* Takes the descriptor. */
static int constants_read(int fd, const char *path, size_t most, char **out, size_t *bytes)
{
	struct elf_file *file;
	uint64_t vaddr, size;
	int err = elf_file_open(&file, fd, path, ""), got;

	if (err) {
		close(fd);
		return err;
	}
	*out = NULL;
	err = elf_file_section(file, ".rodata", &vaddr, &size);
	if (!err) {
		size = lesser(size, most);
		*out = calloc(1, size + 1);
		got = *out ? elf_file_read(file, vaddr, *out, size) : -ENOMEM;
		err = got < 0 ? got : 0;
		*bytes = err ? 0 : (size_t)got;
	}
	elf_file_close(file);
	if (err)
		free(*out);
	return err;
}

int statics_constants(pid_t pid, const struct process_map *map, size_t most, char **out,
		      size_t *bytes)
{
	int fd = process_map_open(pid, map);

	return fd < 0 ? fd : constants_read(fd, map->path, most, out, bytes);
}

static bool has_content(uint8_t page)
{
	return page == SPACE_MEMORY || page == SPACE_FILE;
}

/* Copies the pages that have a content. 0; -ESRCH; -EPERM; -ENOMEM. */
static int pages_copy(struct space *space, uint64_t address, const uint8_t *pages, size_t count,
		      uint8_t *out)
{
	for (size_t i = 0; i < count; i++) {
		int err = has_content(pages[i])
				  ? space_read(space, address + i * PAGE, out + i * PAGE, PAGE)
				  : -EFAULT;

		if (space_is_fatal(err))
			return err;
		if (err)
			memset(out + i * PAGE, 0, PAGE);
	}
	return 0;
}

int statics_search(struct space *space, const struct statics *statics, statics_fn look,
		   void *context)
{
	_cleanup_free_ uint8_t *bytes = malloc((size_t)(PIECE_PAGES + MORE_PAGES) * PAGE);
	uint8_t pages[PIECE_PAGES + MORE_PAGES];
	size_t left = PAGES_MAX;
	int err = bytes ? 0 : -ENOMEM;

	for (uint64_t at = statics->start; at < statics->end && left && !err;
	     at += (uint64_t)PIECE_PAGES * PAGE) {
		uint64_t rest = (statics->end - at) / PAGE;
		size_t count = rest < PIECE_PAGES + MORE_PAGES ? rest : PIECE_PAGES + MORE_PAGES;
		size_t here = 0, size = count * PAGE;

		err = space_pages(space, at, count, pages);
		for (size_t i = 0; i < count && i < PIECE_PAGES && !err; i++)
			here += has_content(pages[i]);
		if (err || !here)
			continue;
		left -= here < left ? here : left;
		if (count > PIECE_PAGES)
			size = PIECE_PAGES * PAGE + STATICS_OVERLAP;
		err = pages_copy(space, at, pages, count, bytes) ?: look(at, bytes, size, context);
	}
	return err;
}
