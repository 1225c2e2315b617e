/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (fs/binfmt_elf.c). Each map is a PT_LOAD segment, whose file part is the memory that was
 * dumped: all of a map, none of it, or the first page of a file's. Notes have the rest: NT_FILE the
 * maps' files, NT_PRPSINFO the process's id and name, NT_AUXV where its executable and its stack
 * are.
 */
#include "core/core_file.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "core/core_notes.h"

#define PAGE      4096u
#define MAX_MAPS  (1u << 16)
#define MAX_NOTES (64u << 20) /* bytes */

static int corrupt(const char *what)
{
	return error_set(-EINVAL, "a corrupt core file: %s", what);
}

static int header_check(int fd, uint64_t file_bytes)
{
	Elf64_Ehdr header;

	if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != EM_X86_64 ||
	    header.e_type != ET_CORE)
		return error_set(-EINVAL, "it is no core file of x86-64");
	/* libelf would allocate whatever the first section says. */
	if (header.e_shoff && !header.e_shnum)
		return corrupt("it has sections without a number");
	if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > file_bytes)
		return corrupt("its segments are not in it");
	return 0;
}

static int map_add(struct core_file *core, const GElf_Phdr *segment, uint64_t file_bytes)
{
	struct process_map *map = &core->maps.entries[core->maps.count];
	struct core_content *content = &core->contents[core->maps.count];
	uint64_t end = segment->p_vaddr + segment->p_memsz;

	if (!segment->p_memsz)
		return 0;
	if (end < segment->p_vaddr || segment->p_vaddr % PAGE || end % PAGE ||
	    segment->p_filesz > segment->p_memsz ||
	    (core->maps.count && segment->p_vaddr < map[-1].end))
		return corrupt("its segments overlap, or are out of order");
	*map = (struct process_map){.start = segment->p_vaddr,
				    .end = end,
				    .executable = (segment->p_flags & PF_X) != 0,
				    .readable = (segment->p_flags & PF_R) != 0,
				    .writable = (segment->p_flags & PF_W) != 0};
	*content = (struct core_content){segment->p_offset, segment->p_filesz, segment->p_filesz};
	if (segment->p_offset > file_bytes)
		content->stored = 0;
	else if (content->stored > file_bytes - segment->p_offset)
		content->stored = file_bytes - segment->p_offset;
	core->bytes_cut += content->meant - content->stored;
	map->path = strdup("");
	if (!map->path)
		return -ENOMEM;
	core->maps.count++;
	return 0;
}

static int notes_load(struct core_file *core, Elf *elf, const GElf_Phdr *segment,
		      uint64_t file_bytes)
{
	Elf_Data *data;

	if (segment->p_offset > file_bytes || segment->p_filesz > file_bytes - segment->p_offset)
		return corrupt("it ends within its notes");
	if (segment->p_filesz > MAX_NOTES)
		return corrupt("its notes are too long");
	data = elf_getdata_rawchunk(elf, (int64_t)segment->p_offset, segment->p_filesz,
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
			err = type == PT_LOAD ? map_add(core, &segment, file_bytes)
					      : notes_load(core, elf, &segment, file_bytes);
	}
	return err;
}

static int elf_load(struct core_file *core, Elf *elf, uint64_t file_bytes)
{
	size_t count;
	int err;

	if (!elf || elf_getphdrnum(elf, &count))
		return corrupt(elf_errmsg(-1));
	if (!count || count > MAX_MAPS)
		return corrupt("its number of segments is impossible");
	core->maps.entries = calloc(count, sizeof(*core->maps.entries));
	core->contents = calloc(count, sizeof(*core->contents));
	if (!core->maps.entries || !core->contents)
		return -ENOMEM;
	err = segments_load(core, elf, count, PT_LOAD, file_bytes);
	core->executable = core->maps.count;
	return err ?: segments_load(core, elf, count, PT_NOTE, file_bytes);
}

int core_open_fd(struct core_file *out, int fd, const char *sysroot)
{
	struct core_file core = {.fd = fd, .last_fd = -1};
	struct stat stat;
	Elf *elf;
	int err;

	if (fstat(fd, &stat))
		return -errno;
	if (!S_ISREG(stat.st_mode))
		return error_set(-EINVAL, "it is not a regular file");
	err = header_check(fd, (uint64_t)stat.st_size);
	if (err)
		return err;
	core.disk_bytes = (uint64_t)stat.st_blocks * 512;
	core.sysroot = strdup(sysroot ? sysroot : "/");
	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
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
	int fd, err;

	error_clear();
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	err = core_open_fd(out, fd, sysroot);
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
	if (core->last_fd >= 0)
		close(core->last_fd);
	if (core->fd >= 0)
		close(core->fd);
	*core = (struct core_file){.fd = -1, .last_fd = -1};
}
