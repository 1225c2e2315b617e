/* SPDX-License-Identifier: Apache-2.0 */
#include "object/elf/elf_section.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/arch.h"
#include "util/error.h"

/* look-ups scan all segments; the kernel accepts few more */
#define SEGMENTS_MAX  1024u
#define TABLES_PACKED 8u         /* limit of table bytes, as a multiple of the bytes on disk */
#define NOTES_MAX     (1u << 20) /* largest note section that is searched for the build id, bytes */
#define TABLES_SLACK  (1ull << 20) /* bytes that are always allowed */

/* Is [offset, offset + bytes) within the file? */
static int in_file(uint64_t offset, uint64_t bytes, uint64_t file_bytes)
{
	return offset <= file_bytes && bytes <= file_bytes - offset;
}

static int check_header(const Elf64_Ehdr *header, uint64_t file_bytes, int relocatable)
{
	if (memcmp(header->e_ident, ELFMAG, SELFMAG))
		return error_set(-ENOEXEC, "not an ELF file");
	if (header->e_ident[EI_CLASS] == ELFCLASS32)
		return error_set(-ENOEXEC,
				 "a program of 32 bits; only those of " ARCH_NAME " are supported");
	if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
	    header->e_machine != ARCH_ELF)
		return error_set(-ENOEXEC, "an ELF file of another machine than " ARCH_NAME);
	if (header->e_ident[EI_VERSION] != EV_CURRENT || header->e_version != EV_CURRENT)
		return error_set(-ENOEXEC, "unknown version of ELF");
	if (relocatable ? header->e_type != ET_REL
			: header->e_type != ET_EXEC && header->e_type != ET_DYN)
		return error_set(-ENOEXEC, "ELF file of type %u", header->e_type);
	/*
	 * Counts that do not fit into the header occur only in object files, and libelf would
	 * allocate whatever they say: refused.
	 */
	if (header->e_phnum == PN_XNUM || (header->e_shoff && !header->e_shnum))
		return error_set(-ENOEXEC, "ELF file with more than 65,279 sections or segments");
	if (header->e_phnum > SEGMENTS_MAX)
		return error_set(-ENOEXEC, "ELF file with more than %u segments", SEGMENTS_MAX);
	if (header->e_phnum &&
	    (header->e_phentsize != sizeof(Elf64_Phdr) ||
	     !in_file(header->e_phoff, header->e_phnum * sizeof(Elf64_Phdr), file_bytes)))
		return error_set(-ENOEXEC,
				 "corrupt ELF file: the segment table ends beyond the file");
	if (header->e_shnum &&
	    (header->e_shentsize != sizeof(Elf64_Shdr) || !header->e_shoff ||
	     !in_file(header->e_shoff, header->e_shnum * sizeof(Elf64_Shdr), file_bytes)))
		return error_set(-ENOEXEC,
				 "corrupt ELF file: the section table ends beyond the file");
	if (header->e_shnum && header->e_shstrndx >= header->e_shnum)
		return error_set(-ENOEXEC, "corrupt ELF file: no section %u for names",
				 header->e_shstrndx);
	return 0;
}

/* elf_strptr() would load the table of section names whatever its size. */
static int check_names(Elf *elf)
{
	const char *names;
	size_t index, bytes;

	if (elf_getshdrstrndx(elf, &index))
		return error_set(-ENOEXEC, "corrupt ELF file: %s", elf_errmsg(-1));
	return index == SHN_UNDEF ? 0 : elf_section_strings(elf, index, &names, &bytes);
}

/* Whether sections of this type are loaded completely. */
static bool is_table(uint32_t type)
{
	switch (type) {
	case SHT_SYMTAB:
	case SHT_DYNSYM:
	case SHT_STRTAB:
	case SHT_RELA:
	case SHT_DYNAMIC:
	case SHT_NOTE:
	case SHT_GNU_versym:
		return 1;
	default:
		return 0;
	}
}

/*
 * Limit for the sum of the file's tables. A sparse file may be larger than its blocks on disk, and
 * sections may share bytes, so a hostile file can claim large tables at no cost. The factor allows
 * for compressing file systems, which shrink tables to about a quarter. If a file system reports no
 * blocks, the file size is used.
 */
static uint64_t tables_max(const struct stat *st)
{
	uint64_t bytes = (uint64_t)st->st_size,
		 held = (uint64_t)st->st_blocks * 512 * TABLES_PACKED;

	return (held && held < bytes ? held : bytes) + TABLES_SLACK;
}

static int check_tables(Elf *elf, uint64_t max)
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	uint64_t bytes = 0;

	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, &header))
			return error_set(-ENOEXEC, "corrupt ELF file: %s", elf_errmsg(-1));
		if (!is_table(header.sh_type))
			continue;
		if (header.sh_size > max - bytes)
			return error_set(-ENOEXEC,
					 "ELF file whose tables are larger than the file");
		bytes += header.sh_size;
	}
	return 0;
}

static int file_begin(Elf **out, int fd, uint64_t *file_bytes, int relocatable)
{
	Elf64_Ehdr header;
	struct stat st;

	if (fstat(fd, &st))
		return error_errno();
	ssize_t n = pread(fd, &header, sizeof(header), 0);
	if (n < 0)
		return error_errno();
	if ((size_t)n < sizeof(header))
		return error_set(-ENOEXEC, "not an ELF file");
	int err = check_header(&header, (uint64_t)st.st_size, relocatable);
	if (err)
		return err;

	if (elf_version(EV_CURRENT) == EV_NONE)
		return error_set(-ENOEXEC, "libelf: %s", elf_errmsg(-1));
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return error_set(-ENOEXEC, "corrupt ELF file: %s", elf_errmsg(-1));
	/* The file may have changed since it was checked. */
	err = elf_kind(elf) == ELF_K_ELF && gelf_getclass(elf) == ELFCLASS64
		      ? check_tables(elf, tables_max(&st))
		      : error_set(-ENOEXEC, "not an ELF file");
	err = err ?: check_names(elf);
	if (err) {
		elf_end(elf);
		return err;
	}
	*file_bytes = (uint64_t)st.st_size;
	*out = elf;
	return 0;
}

int elf_section_begin(Elf **out, int fd, uint64_t *file_bytes)
{
	return file_begin(out, fd, file_bytes, 0);
}

int elf_section_begin_common(Elf **out, int fd)
{
	uint64_t file_bytes;

	return file_begin(out, fd, &file_bytes, 1);
}

Elf_Scn *elf_section_by_name(Elf *elf, const char *name, GElf_Shdr *header)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) || names == SHN_UNDEF)
		return NULL;
	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, header))
			continue;
		const char *found = elf_strptr(elf, names, header->sh_name);
		if (found && !strcmp(found, name))
			return section;
	}
	return NULL;
}

Elf_Scn *elf_section_by_type(Elf *elf, uint32_t type, Elf_Scn *after, GElf_Shdr *header)
{
	while ((after = elf_nextscn(elf, after)))
		if (gelf_getshdr(after, header) && header->sh_type == type)
			return after;
	return NULL;
}

Elf_Data *elf_section_data(Elf_Scn *section, const GElf_Shdr *header)
{
	Elf_Data *data = NULL;

	if (header->sh_type == SHT_NOBITS)
		error_set(-ENOEXEC, "section %zu has no content in the file", elf_ndxscn(section));
	else if (header->sh_flags & SHF_COMPRESSED)
		error_set(-ENOEXEC, "section %zu is compressed", elf_ndxscn(section));
	else if (header->sh_size > ELF_SECTION_MAX)
		error_set(-ENOEXEC, "section %zu is larger than %u MiB", elf_ndxscn(section),
			  ELF_SECTION_MAX >> 20);
	else {
		data = elf_getdata(section, NULL);
		if (!data || (data->d_size && !data->d_buf)) {
			error_set(-ENOEXEC, "corrupt ELF file: section %zu: %s",
				  elf_ndxscn(section), data ? "no data" : elf_errmsg(-1));
			data = NULL;
		}
	}
	return data;
}

int elf_section_strings(Elf *elf, size_t index, const char **strings, size_t *bytes)
{
	Elf_Scn *section = elf_getscn(elf, index);
	GElf_Shdr header;

	if (!section || !gelf_getshdr(section, &header) || header.sh_type != SHT_STRTAB)
		return error_set(-ENOEXEC, "corrupt ELF file: section %zu is not a string table",
				 index);
	Elf_Data *data = elf_section_data(section, &header);
	if (!data)
		return -ENOEXEC;
	if (!data->d_size || ((const char *)data->d_buf)[data->d_size - 1])
		return error_set(-ENOEXEC, "corrupt ELF file: string table %zu is not terminated",
				 index);
	*strings = data->d_buf;
	*bytes = data->d_size;
	return 0;
}

static int note_build_id(Elf_Data *data, char out[ELF_BUILD_ID_HEX_MAX])
{
	const unsigned char *bytes = data->d_buf;
	size_t offset = 0, next, name, description;
	GElf_Nhdr note;

	for (; (next = gelf_getnote(data, offset, &note, &name, &description)); offset = next) {
		if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof("GNU") ||
		    memcmp(bytes + name, "GNU", sizeof("GNU")) || !note.n_descsz ||
		    note.n_descsz > ELF_BUILD_ID_MAX)
			continue;
		for (size_t i = 0; i < note.n_descsz; i++)
			sprintf(out + 2 * i, "%02x", bytes[description + i]);
		return 1;
	}
	return 0;
}

void elf_section_build_id(Elf *elf, char out[ELF_BUILD_ID_HEX_MAX])
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;

	out[0] = '\0';
	while ((section = elf_section_by_type(elf, SHT_NOTE, section, &header))) {
		if (header.sh_size > NOTES_MAX)
			continue;
		Elf_Data *data = elf_section_data(section, &header);
		if (data && note_build_id(data, out))
			return;
	}
}
