/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_notes.h"

#include <errno.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/procfs.h>

#include "base/error.h"
#include "elf/elf_reader.h"

#define ENTRY_BYTES 24u /* of a map in NT_FILE: its start, end, and page of the file */
#define STACK       "[stack]"

static int map_name(struct process_map *map, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	free(map->path);
	map->path = copy;
	return 0;
}

/* Files are recognised by their paths: those of the maps nearby are the same file's, if any. */
static uint64_t inode_of(const struct core_file *core, size_t map, uint64_t *last)
{
	for (size_t i = map, steps = 0; i-- && steps < 64; steps++)
		if (core->maps.entries[i].inode &&
		    !strcmp(core->maps.entries[i].path, core->maps.entries[map].path))
			return core->maps.entries[i].inode;
	return ++*last;
}

/*
 * NT_FILE: the number of entries, the size of a page, the entries, then their paths, each with a
 * NUL.
 */
static int files_read(struct core_file *core, const uint8_t *bytes, size_t size)
{
	struct elf_reader reader = {.bytes = bytes, .end = size};
	uint64_t count = elf_take(&reader, 8), page = elf_take(&reader, 8), last = 0;
	const char *path, *end = (const char *)bytes + size;

	if (reader.failed || count > (size - reader.at) / ENTRY_BYTES)
		return error_set(-EINVAL, "a corrupt core file: its list of files ends beyond it");
	path = (const char *)bytes + reader.at + count * ENTRY_BYTES;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t start = elf_take(&reader, 8), offset;
		size_t number = core_map_find(core, start), length = strnlen(path, (size_t)(end - path));
		struct process_map *map = &core->maps.entries[number];

		elf_take(&reader, 8); /* its end */
		offset = elf_take(&reader, 8);
		if (length == (size_t)(end - path))
			return error_set(-EINVAL,
					 "a corrupt core file: the path of a file has no end");
		if (number < core->maps.count && map->start == start && path[0] == '/' &&
		    !__builtin_mul_overflow(offset, page, &map->offset)) {
			if (map_name(map, path))
				return -ENOMEM;
			map->inode = inode_of(core, number, &last);
		}
		path += length + 1;
	}
	return 0;
}

static int aux_read(struct core_file *core, const uint8_t *bytes, size_t size)
{
	struct elf_reader reader = {.bytes = bytes, .end = size};

	while (reader.end - reader.at >= 16) {
		uint64_t type = elf_take(&reader, 8), value = elf_take(&reader, 8);
		size_t map = core_map_find(core, value);

		if (map == core->maps.count)
			continue;
		if (type == AT_ENTRY)
			core->executable = map;
		/* Random bytes that the kernel has put on the first thread's stack. */
		else if (type == AT_RANDOM && !core->maps.entries[map].path[0] &&
			 map_name(&core->maps.entries[map], STACK))
			return -ENOMEM;
	}
	return 0;
}

static void process_read(struct core_file *core, const uint8_t *bytes, size_t size)
{
	struct elf_prpsinfo info;

	if (size < sizeof(info))
		return;
	memcpy(&info, bytes, sizeof(info));
	core->pid = (uint32_t)info.pr_pid;
	memcpy(core->name, info.pr_fname, sizeof(info.pr_fname));
	core->name[sizeof(info.pr_fname)] = 0;
}

int core_notes_read(struct core_file *core, Elf_Data *notes)
{
	size_t at = 0, name, content;
	GElf_Nhdr note;
	int err = 0;

	while (!err && (at = gelf_getnote(notes, at, &note, &name, &content))) {
		const uint8_t *bytes = (const uint8_t *)notes->d_buf + content;

		if (note.n_namesz != 5 || memcmp((const char *)notes->d_buf + name, "CORE", 5))
			continue;
		if (note.n_type == NT_FILE)
			err = files_read(core, bytes, note.n_descsz);
		else if (note.n_type == NT_AUXV)
			err = aux_read(core, bytes, note.n_descsz);
		else if (note.n_type == NT_PRPSINFO)
			process_read(core, bytes, note.n_descsz);
	}
	return err;
}
