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
#include <libelf.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/procfs.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/arch.h"
#include "util/array.h"
#include "util/descriptor.h"
#include "util/elf_reader.h"
#include "util/error.h"
#include "util/regular.h"
#include "util/sorted.h"

#define MAX_MAPS (1u << 16)

#define ENTRY_BYTES 24u /* of a map in NT_FILE: its start, end, and page of the file */

static int corrupt(const char *what)
{
	return error_set(-EINVAL, "a corrupt core file: %s", what);
}

/* core_map_find() among the first maps, which are in order; count: none. */
static size_t core_map_among(const struct core_file *core, size_t count, uint64_t address)
{
	size_t at = SORTED_ABOVE(core->maps.entries, count, end, address);

	return at < count && core->maps.entries[at].start <= address ? at : count;
}

/* Adds a map, whose path is copied. 0; -EINVAL: there are too many (error_set); -ENOMEM. */
static int core_map_add(struct core_file *core, const struct process_map *map,
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

/*
 * Reads the notes of a segment: the paths of the maps, which are there already, further maps of
 * files, and what is told of the process. Notes that are not understood are passed over. 0; -EINVAL
 * (error_set); -ENOMEM.
 */
static int core_notes_read(struct core_file *core, Elf_Data *notes)
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

#define PAGE      4096u
#define MAX_NOTES (64u << 20) /* bytes */
#define FILE_MAPS 64u         /* between two maps of a file */

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
		return error_errno();
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
		return error_errno();
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
	descriptor_close(core->last_fd);
	descriptor_close(core->fd);
	*core = (struct core_file){.fd = -1, .last_fd = -1};
}

#define PAGE 4096u

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
static bool is_same(const struct core_file *core, const struct process_map *map, int fd)
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
		return error_errno();
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
		descriptor_close(core->last_fd);
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
static bool page_has_text(const struct core_file *core, uint64_t page)
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
