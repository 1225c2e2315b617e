/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (fs/binfmt_elf.c). Each map is a PT_LOAD segment, whose file part is the memory that was
 * dumped: all of a map, none of it, or the first page of a file's. gdb leaves out segments of which
 * it would write nothing. Notes have the rest: NT_FILE the maps of files, NT_PRPSINFO the process's
 * id and name, NT_AUXV where its executable and its stack are.
 */
#include "proc/core/core_file.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/core/core_notes.h"
#include "util/arch.h"
#include "util/error.h"
#include "util/sorted.h"

#define PAGE      4096u
#define MAX_MAPS  (1u << 16)
#define MAX_NOTES (64u << 20) /* bytes */
#define FILE_MAPS 64u         /* between two maps of a file */

static int corrupt(const char *what)
{
	return error_set(-EINVAL, "a corrupt core file: %s", what);
}

static int header_check(int fd, uint64_t file_bytes)
{
	Elf64_Ehdr header;

	if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != ARCH_ELF ||
	    header.e_type != ET_CORE)
		return error_set(-EINVAL, "it is no core file of " ARCH_NAME);
	/* libelf would allocate whatever the first section says. */
	if (header.e_shoff && !header.e_shnum)
		return corrupt("it has sections without a number");
	if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > file_bytes)
		return corrupt("its segments are not in it");
	return 0;
}

int core_map_add(struct core_file *core, const struct process_map *map,
		 const struct core_content *content)
{
	size_t count = core->maps.count;
	struct process_map *entries;
	struct core_content *contents;
	char *path = strdup(map->path);

	if (count == MAX_MAPS) {
		free(path);
		return corrupt("it has too many maps");
	}
	if (count == core->capacity) {
		size_t capacity = count ? 2 * count : 64;

		entries = realloc(core->maps.entries, capacity * sizeof(*entries));
		core->maps.entries = entries ? entries : core->maps.entries;
		contents = realloc(core->contents, capacity * sizeof(*contents));
		core->contents = contents ? contents : core->contents;
		core->capacity = entries && contents ? capacity : core->capacity;
	}
	if (!path || count == core->capacity) {
		free(path);
		return -ENOMEM;
	}
	core->maps.entries[count] = *map;
	core->maps.entries[count].path = path;
	core->contents[count] = *content;
	core->maps.count++;
	return 0;
}

static int segment_add(struct core_file *core, const GElf_Phdr *segment, uint64_t file_bytes)
{
	uint64_t end = segment->p_vaddr + segment->p_memsz;
	struct process_map map = {.start = segment->p_vaddr,
				  .end = end,
				  .executable = (segment->p_flags & PF_X) != 0,
				  .readable = (segment->p_flags & PF_R) != 0,
				  .writable = (segment->p_flags & PF_W) != 0,
				  .path = ""};
	struct core_content content = {segment->p_offset, segment->p_filesz, segment->p_filesz, 0};

	if (!segment->p_memsz)
		return 0;
	if (end < segment->p_vaddr || segment->p_vaddr % PAGE || end % PAGE ||
	    segment->p_filesz > segment->p_memsz ||
	    (core->maps.count && segment->p_vaddr < core->maps.entries[core->maps.count - 1].end))
		return corrupt("its segments overlap, or are out of order");
	if (segment->p_offset > file_bytes)
		content.stored = 0;
	else if (content.stored > file_bytes - segment->p_offset)
		content.stored = file_bytes - segment->p_offset;
	core->bytes_cut += content.meant - content.stored;
	return core_map_add(core, &map, &content);
}

static int notes_load(struct core_file *core, Elf *elf, const GElf_Phdr *segment,
		      uint64_t file_bytes)
{
	if (segment->p_offset > file_bytes || segment->p_filesz > file_bytes - segment->p_offset)
		return corrupt("it ends within its notes");
	if (segment->p_filesz > MAX_NOTES)
		return corrupt("its notes are too long");
	Elf_Data *data = elf_getdata_rawchunk(elf, (int64_t)segment->p_offset, segment->p_filesz,
					      segment->p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
	return data ? core_notes_read(core, data) : corrupt(elf_errmsg(-1));
}

/* Segments of the type, in order; notes come before the maps that they name. */
static int segments_load(struct core_file *core, Elf *elf, size_t count, uint32_t type,
			 uint64_t file_bytes)
{
	GElf_Phdr segment;
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		if (!gelf_getphdr(elf, (int)i, &segment))
			return corrupt(elf_errmsg(-1));
		if (segment.p_type == type)
			err = type == PT_LOAD ? segment_add(core, &segment, file_bytes)
					      : notes_load(core, elf, &segment, file_bytes);
	}
	return err;
}

struct core_file_mapped {
	struct process_map map;
	struct core_content content;
};

/* Maps that only the notes have are behind the others. */
static int maps_sort(struct core_file *core)
{
	struct process_map *entries = core->maps.entries;
	struct core_file_mapped *sorted = calloc(core->maps.count + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < core->maps.count; i++)
		sorted[i] = (struct core_file_mapped){entries[i], core->contents[i]};
	SORT_BY(sorted, core->maps.count, map.start);
	for (size_t i = 0; i < core->maps.count; i++) {
		entries[i] = sorted[i].map;
		core->contents[i] = sorted[i].content;
	}
	free(sorted);
	for (size_t i = 1; i < core->maps.count; i++)
		if (entries[i - 1].end > entries[i].start || entries[i].start % PAGE ||
		    entries[i].end % PAGE)
			return corrupt("its maps overlap");
	return 0;
}

/* Maps with one path are one file's, if they are near each other. */
static void files_number(struct core_file *core)
{
	struct process_map *entries = core->maps.entries;
	uint64_t last = 0;

	for (size_t i = 0; i < core->maps.count; i++) {
		if (!entries[i].path[0])
			continue;
		for (size_t j = i; j-- && i - j <= FILE_MAPS && !entries[i].inode;)
			if (!strcmp(entries[j].path, entries[i].path))
				entries[i].inode = entries[j].inode;
		if (!entries[i].inode)
			entries[i].inode = ++last;
	}
}

/* The kernel has put random bytes on the first thread's stack. */
static int stack_name(struct core_file *core)
{
	size_t number = core_map_find(core, core->random);
	struct process_map *map = &core->maps.entries[number];

	if (number == core->maps.count || map->path[0])
		return 0;
	char *name = strdup("[stack]");
	if (!name)
		return -ENOMEM;
	free(map->path);
	map->path = name;
	return 0;
}

static int elf_load(struct core_file *core, Elf *elf, uint64_t file_bytes)
{
	size_t count;

	if (!elf || elf_getphdrnum(elf, &count))
		return corrupt(elf_errmsg(-1));
	if (!count || count > MAX_MAPS)
		return corrupt("its number of segments is impossible");
	int err = segments_load(core, elf, count, PT_LOAD, file_bytes);
	if (!err && !core->maps.count)
		err = corrupt("it has no memory");
	err = err ?: segments_load(core, elf, count, PT_NOTE, file_bytes) ?: maps_sort(core);
	if (err)
		return err;
	files_number(core);
	core->executable = core_map_find(core, core->entry);
	return stack_name(core);
}

int core_open_fd(struct core_file *out, int fd, const char *sysroot)
{
	struct core_file core = {.fd = fd, .last_fd = -1};
	struct stat stat;

	if (fstat(fd, &stat))
		return -errno;
	if (!S_ISREG(stat.st_mode))
		return error_set(-EINVAL, "it is not a regular file");
	int err = header_check(fd, (uint64_t)stat.st_size);
	if (err)
		return err;
	core.disk_bytes = (uint64_t)stat.st_blocks * 512;
	core.sysroot = strdup(sysroot ? sysroot : "/");
	elf_version(EV_CURRENT);
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	err = core.sysroot ? elf_load(&core, elf, (uint64_t)stat.st_size) : -ENOMEM;
	elf_end(elf);
	if (err) {
		core.fd = -1;
		core_close(&core);
		return err;
	}
	*out = core;
	return 0;
}

int core_open(struct core_file *out, const char *path, const char *sysroot)
{
	error_clear();
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	int err = core_open_fd(out, fd, sysroot);
	if (err)
		close(fd);
	return err;
}

void core_close(struct core_file *core)
{
	process_maps_free(&core->maps);
	free(core->contents);
	free(core->sysroot);
	free(core->absent);
	free(core->texts);
	if (core->last_fd >= 0)
		close(core->last_fd);
	if (core->fd >= 0)
		close(core->fd);
	*core = (struct core_file){.fd = -1, .last_fd = -1};
}
