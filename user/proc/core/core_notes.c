/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/core/core_notes.h"

#include <errno.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/procfs.h>

#include "util/elf_reader.h"
#include "util/error.h"

#define ENTRY_BYTES 24u /* of a map in NT_FILE: its start, end, and page of the file */

static int map_name(struct process_map *map, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	free(map->path);
	map->path = copy;
	return 0;
}

/* Names the map at start, or adds it: gdb writes none for what is in a file alone. */
static int file_take(struct core_file *core, size_t known, const struct process_map *file)
{
	size_t number = core_map_among(core, known, file->start);
	struct process_map *map = &core->maps.entries[number];

	if (file->path[0] != '/' || file->start >= file->end)
		return 0;
	if (number == known)
		return core_map_add(core, file, &(struct core_content){.guessed = 1});
	if (map->start != file->start)
		return 0;
	map->offset = file->offset;
	return map_name(map, file->path);
}

/*
 * NT_FILE: the number of entries, the size of a page, the entries, then their paths, each with a
 * NUL.
 */
static int files_read(struct core_file *core, const uint8_t *bytes, size_t size)
{
	struct elf_reader reader = {.bytes = bytes, .end = size};
	uint64_t count = elf_take(&reader, 8), page = elf_take(&reader, 8);
	char *path, *end = (char *)bytes + size;
	size_t known = core->maps.count, length;
	int err = 0;

	if (reader.failed || count > (size - reader.at) / ENTRY_BYTES)
		return error_set(-EINVAL, "a corrupt core file: its list of files ends beyond it");
	path = (char *)bytes + reader.at + count * ENTRY_BYTES;
	for (uint64_t i = 0; i < count && !err; i++, path += length + 1) {
		struct process_map file = {.path = path, .readable = 1, .executable = 1};

		file.start = elf_take(&reader, 8);
		file.end = elf_take(&reader, 8);
		length = strnlen(path, (size_t)(end - path));
		if (length == (size_t)(end - path))
			return error_set(-EINVAL,
					 "a corrupt core file: the path of a file has no end");
		if (!__builtin_mul_overflow(elf_take(&reader, 8), page, &file.offset))
			err = file_take(core, known, &file);
	}
	return err;
}

static void aux_read(struct core_file *core, const uint8_t *bytes, size_t size)
{
	struct elf_reader reader = {.bytes = bytes, .end = size};

	while (reader.end - reader.at >= 16) {
		uint64_t type = elf_take(&reader, 8), value = elf_take(&reader, 8);

		if (type == AT_ENTRY)
			core->entry = value;
		else if (type == AT_RANDOM)
			core->random = value;
	}
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
			aux_read(core, bytes, note.n_descsz);
		else if (note.n_type == NT_PRPSINFO)
			process_read(core, bytes, note.n_descsz);
	}
	return err;
}
