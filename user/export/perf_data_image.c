/* SPDX-License-Identifier: Apache-2.0 */
#include "export/perf_data_image.h"

#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>

#include "base/arch.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/hash.h"
#include "export/perf_data_dwarf.h"

struct note {
	Elf64_Nhdr header;
	char name[4];
	uint8_t build_id[PERF_BUILD_ID_BYTES];
};

/* The contents of the sections; libelf borrows them until the file is written. */
struct content {
	struct note note;
	struct buffer text, symbols, names, section_names;
	struct perf_dwarf dwarf;
};

uint64_t perf_image_text_bytes(const struct perf_frames *frames)
{
	return (uint64_t)(frames->count ? frames->count : 1) * PERF_SLOT_BYTES;
}

static int text_build(struct buffer *out, uint64_t bytes)
{
	static const uint8_t nop[PERF_SLOT_BYTES] = {0x0f, 0x1f, 0x40, 0x00}; /* nopl 0(%rax) */
	int err = buffer_reserve(out, bytes);

	while (!err && out->size < bytes)
		err = buffer_append(out, nop, sizeof(nop));
	return err;
}

/*
 * The names that CPython gives perf: py::FUNCTION:FILE; py::FILE if the function is unknown. Native
 * functions have their own.
 */
static int symbol_name_append(struct buffer *out, const struct perf_frames *frames,
			      const struct snapshot_frame *frame)
{
	const char *function = strings_get(frames->strings, frame->function);
	int err = frame->native ? 0 : buffer_append(out, "py::", 4);

	if (!err && frame->native && function[0]) {
		err = perf_name_append(out, function, 0);
		return err ? err : buffer_append(out, "", 1);
	}
	if (!err && function[0]) {
		err = perf_name_append(out, function, 0);
		if (!err)
			err = buffer_append(out, ":", 1);
	}
	if (!err)
		err = perf_name_append(out, strings_get(frames->strings, frame->filename), 0);
	return err ? err : buffer_append(out, "", 1);
}

static int symbols_build(struct content *content, const struct perf_frames *frames,
			 Elf64_Section text)
{
	Elf64_Sym symbol = {0};
	int err = buffer_append(&content->symbols, &symbol, sizeof(symbol));

	if (!err)
		err = buffer_append(&content->names, "", 1);
	for (uint32_t first = 0, end; !err && first < frames->count; first = end) {
		end = perf_frames_function_end(frames, first);
		if (content->names.size > UINT32_MAX)
			return error_set(-EFBIG,
					 "the names of the functions do not fit into an ELF file");
		symbol = (Elf64_Sym){
			.st_name = (Elf64_Word)content->names.size,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			.st_shndx = text,
			.st_value = PERF_IMAGE_TEXT + (uint64_t)first * PERF_SLOT_BYTES,
			.st_size = (uint64_t)(end - first) * PERF_SLOT_BYTES,
		};
		err = buffer_append(&content->symbols, &symbol, sizeof(symbol));
		if (!err)
			err = symbol_name_append(&content->names, frames, &frames->frames[first]);
	}
	return err;
}

/* Three sums with different seeds. Buffers are hashed by words, the rest as one word. */
static void hash_add(uint64_t sums[3], const struct buffer *data)
{
	for (size_t at = 0; at < data->size + 1; at += sizeof(uint64_t)) {
		size_t bytes =
			data->size - at < sizeof(uint64_t) ? data->size - at : sizeof(uint64_t);
		uint64_t word = data->size;

		memcpy(&word, data->data + at, bytes);
		for (int i = 0; i < 3; i++)
			sums[i] = hash_u64(sums[i] ^ word) + (uint64_t)i;
	}
}

/* .text and the sections that refer to the line table follow from these. */
static void build_id_set(struct content *content)
{
	uint64_t sums[3] = {1, 2, 3};

	hash_add(sums, &content->symbols);
	hash_add(sums, &content->names);
	hash_add(sums, &content->dwarf.line);
	content->note.header = (Elf64_Nhdr){
		.n_namesz = sizeof(content->note.name),
		.n_descsz = sizeof(content->note.build_id),
		.n_type = NT_GNU_BUILD_ID,
	};
	memcpy(content->note.name, "GNU", 4);
	memcpy(content->note.build_id, sums, sizeof(content->note.build_id));
}

struct section {
	const char *name;
	Elf64_Shdr header;
	void *data;
	size_t bytes;
	Elf_Type type;
};

enum { NOTE = 1, TEXT, SYMTAB, STRTAB, LINE, INFO, ABBREV, ARANGES, SHSTRTAB, SECTIONS };

static int section_add(Elf *elf, const struct section *section, struct buffer *names)
{
	Elf_Scn *scn = elf_newscn(elf);
	Elf_Data *data = scn ? elf_newdata(scn) : NULL;
	Elf64_Shdr *header = scn ? elf64_getshdr(scn) : NULL;

	if (!data || !header)
		return error_set(-EIO, "%s", elf_errmsg(-1));
	*header = section->header;
	header->sh_name = (Elf64_Word)names->size;
	data->d_buf = section->data;
	data->d_size = section->bytes;
	data->d_type = section->type;
	data->d_align = header->sh_addralign;
	data->d_version = EV_CURRENT;
	return buffer_append(names, section->name, strlen(section->name) + 1);
}

static struct section bytes_section(const char *name, Elf64_Word type, const struct buffer *bytes)
{
	return (struct section){
		name, {.sh_type = type, .sh_addralign = 1}, bytes->data, bytes->size, ELF_T_BYTE};
}

static int sections_add(Elf *elf, struct content *content)
{
	const struct perf_dwarf *dwarf = &content->dwarf;
	struct buffer *names = &content->section_names;
	const struct section sections[SECTIONS] = {
		[NOTE] = {".note.gnu.build-id",
			  {.sh_type = SHT_NOTE, .sh_flags = SHF_ALLOC, .sh_addralign = 4},
			  &content->note,
			  sizeof(content->note),
			  ELF_T_NHDR},
		[TEXT] = {".text",
			  {.sh_type = SHT_PROGBITS,
			   .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
			   .sh_addr = PERF_IMAGE_TEXT,
			   .sh_addralign = PERF_IMAGE_TEXT},
			  content->text.data,
			  content->text.size,
			  ELF_T_BYTE},
		[SYMTAB] = {".symtab",
			    {.sh_type = SHT_SYMTAB,
			     .sh_link = STRTAB,
			     .sh_info = 1,
			     .sh_entsize = sizeof(Elf64_Sym),
			     .sh_addralign = 8},
			    content->symbols.data,
			    content->symbols.size,
			    ELF_T_SYM},
		[STRTAB] = bytes_section(".strtab", SHT_STRTAB, &content->names),
		[LINE] = bytes_section(".debug_line", SHT_PROGBITS, &dwarf->line),
		[INFO] = bytes_section(".debug_info", SHT_PROGBITS, &dwarf->info),
		[ABBREV] = bytes_section(".debug_abbrev", SHT_PROGBITS, &dwarf->abbrev),
		[ARANGES] = bytes_section(".debug_aranges", SHT_PROGBITS, &dwarf->aranges),
		[SHSTRTAB] = {".shstrtab",
			      {.sh_type = SHT_STRTAB, .sh_addralign = 1},
			      NULL,
			      0,
			      ELF_T_BYTE},
	};
	int err = buffer_append(names, "", 1);

	for (int i = NOTE; !err && i < SECTIONS; i++)
		err = section_add(elf, &sections[i], names);
	if (err)
		return err;
	/* All names are known only now. */
	Elf_Data *data = elf_getdata(elf_getscn(elf, SHSTRTAB), NULL);

	data->d_buf = names->data;
	data->d_size = names->size;
	return 0;
}

/* libelf lays out the sections; the segments point to two of them. */
static int segments_set(Elf *elf, Elf64_Phdr *segments)
{
	if (elf_update(elf, ELF_C_NULL) < 0)
		return error_set(-EIO, "%s", elf_errmsg(-1));
	const Elf64_Shdr *note = elf64_getshdr(elf_getscn(elf, NOTE));
	const Elf64_Shdr *text = elf64_getshdr(elf_getscn(elf, TEXT));

	if (text->sh_offset != PERF_IMAGE_TEXT)
		return error_set(-EIO, "libelf placed .text elsewhere");
	elf64_getshdr(elf_getscn(elf, NOTE))->sh_addr = note->sh_offset;
	segments[0] = (Elf64_Phdr){
		.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_filesz = text->sh_offset + text->sh_size,
		.p_memsz = text->sh_offset + text->sh_size,
		.p_align = PERF_IMAGE_TEXT,
	};
	segments[1] = (Elf64_Phdr){
		.p_type = PT_NOTE,
		.p_flags = PF_R,
		.p_offset = note->sh_offset,
		.p_vaddr = note->sh_offset,
		.p_paddr = note->sh_offset,
		.p_filesz = note->sh_size,
		.p_memsz = note->sh_size,
		.p_align = 4,
	};
	return 0;
}

static int elf_write(Elf *elf, struct content *content)
{
	Elf64_Ehdr *header = elf64_newehdr(elf);
	Elf64_Phdr *segments = header ? elf64_newphdr(elf, 2) : NULL;

	if (!segments)
		return error_set(-EIO, "%s", elf_errmsg(-1));
	header->e_ident[EI_DATA] = ELFDATA2LSB;
	header->e_type = ET_DYN;
	header->e_machine = ARCH_ELF;
	header->e_version = EV_CURRENT;
	header->e_shstrndx = SHSTRTAB;
	int err = sections_add(elf, content);
	if (!err)
		err = segments_set(elf, segments);
	if (!err && elf_update(elf, ELF_C_WRITE) < 0)
		err = error_set(-EIO, "%s", elf_errmsg(-1));
	return err;
}

static int content_build(struct content *content, const struct perf_frames *frames)
{
	int err = text_build(&content->text, perf_image_text_bytes(frames));

	if (!err)
		err = symbols_build(content, frames, TEXT);
	if (!err)
		err = perf_dwarf_build(&content->dwarf, frames, PERF_IMAGE_TEXT, PERF_SLOT_BYTES);
	if (!err)
		build_id_set(content);
	return err;
}

int perf_image_write(int fd, const struct perf_frames *frames,
		     uint8_t build_id[PERF_BUILD_ID_BYTES])
{
	struct content content = {0};
	Elf *elf = NULL;
	int err = content_build(&content, frames);

	if (!err) {
		elf_version(EV_CURRENT);
		elf = elf_begin(fd, ELF_C_WRITE, NULL);
		err = elf ? elf_write(elf, &content) : error_set(-EIO, "%s", elf_errmsg(-1));
	}
	elf_end(elf);
	memcpy(build_id, content.note.build_id, PERF_BUILD_ID_BYTES);
	buffer_free(&content.text);
	buffer_free(&content.symbols);
	buffer_free(&content.names);
	buffer_free(&content.section_names);
	perf_dwarf_free(&content.dwarf);
	return err;
}
