/* SPDX-License-Identifier: Apache-2.0 */
#include "report/export/perf_data_image.h"

#include <dwarf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <string.h>

#include "report/export/perf_data_frames.h"
#include "util/arch.h"
#include "util/buffer.h"
#include "util/error.h"
#include "util/hash.h"

/* --- perf data dwarf -------------------------------------------------------------------------- */

/*
 * Maps addresses to lines of files, in DWARF 4: a line table, and the compilation unit that refers
 * to it. elfutils reads DWARF but does not write it, so the few bytes are encoded here. Source: the
 * DWARF 4 standard.
 */

/* Contents of .debug_line, .debug_info, .debug_abbrev, .debug_aranges. */
struct perf_dwarf {
	struct buffer line, info, abbrev, aranges;
};

#define LINE_BASE   (-5)
#define LINE_RANGE  14u
#define OPCODE_BASE 13u

static int u8_append(struct buffer *out, uint8_t value)
{
	return buffer_append(out, &value, sizeof(value));
}

static int u16_append(struct buffer *out, uint16_t value)
{
	return buffer_append(out, &value, sizeof(value));
}

static int u32_append(struct buffer *out, uint32_t value)
{
	return buffer_append(out, &value, sizeof(value));
}

static int u64_append(struct buffer *out, uint64_t value)
{
	return buffer_append(out, &value, sizeof(value));
}

static int uleb_append(struct buffer *out, uint64_t value)
{
	int err = 0;

	for (; !err && value >= 0x80; value >>= 7)
		err = u8_append(out, (uint8_t)(value | 0x80));
	return err ?: u8_append(out, (uint8_t)value);
}

static int sleb_append(struct buffer *out, int64_t value)
{
	int err = 0;

	for (; !err && (value < -64 || value > 63); value >>= 7)
		err = u8_append(out, (uint8_t)((value & 0x7f) | 0x80));
	return err ?: u8_append(out, (uint8_t)(value & 0x7f));
}

/*
 * A unit begins with its length, which is known only at its end: reserves room for it, which
 * unit_end() fills.
 */
static int unit_begin(struct buffer *out, size_t *at)
{
	*at = out->size;
	return u32_append(out, 0);
}

static int unit_end(struct buffer *out, size_t at)
{
	size_t length = out->size - at - 4;

	if (length >= 0xfffffff0) /* values from here on are reserved for 64-bit DWARF */
		return error_set(-EFBIG, "too many lines of code for a line table");
	memcpy(out->data + at, &(uint32_t){(uint32_t)length}, 4);
	return 0;
}

/*
 * The file table: the file names in their order, without directory indices (names contain their
 * directory). perf takes what follows the first colon as the line.
 */
static int files_append(struct buffer *out, const struct perf_frames *frames)
{
	/* the name's NUL, then no directory, time or length */
	static const uint8_t no_more[4] = {0};
	int err = u8_append(out, 0); /* no directories */

	for (uint32_t i = 0; !err && i < frames->count; i++) {
		uint32_t file = frames->frames[i].filename;

		if (i && file == frames->frames[i - 1].filename)
			continue;
		err = perf_name_append(out, strings_get(frames->strings, file), ':')
			      ?: buffer_append(out, no_more, sizeof(no_more));
	}
	return err ?: u8_append(out, 0);
}

static int line_header_append(struct buffer *out, const struct perf_frames *frames,
			      uint32_t slot_bytes)
{
	static const uint8_t operands[OPCODE_BASE - 1] = {0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1};
	size_t header = 0;
	int err = u16_append(out, 4) ?: unit_begin(out, &header);

	if (!err)
		err = u8_append(out, (uint8_t)slot_bytes); /* minimum_instruction_length */
	if (!err)
		err = u8_append(out, 1); /* maximum_operations_per_instruction */
	if (!err)
		err = u8_append(out, 1); /* default_is_stmt */
	err = err ?: u8_append(out, (uint8_t)LINE_BASE);
	err = err ?: u8_append(out, LINE_RANGE);
	err = err ?: u8_append(out, OPCODE_BASE);
	err = err ?: buffer_append(out, operands, sizeof(operands));
	err = err ?: files_append(out, frames);
	return err ?: unit_end(out, header);
}

/*
 * Appends a row: the line, at the address one slot after the previous one (advance 0: at the same
 * address).
 */
static int row_append(struct buffer *out, int64_t line_delta, unsigned int advance)
{
	int err = 0;

	if (line_delta < LINE_BASE || line_delta >= LINE_BASE + (int)LINE_RANGE) {
		err = u8_append(out, DW_LNS_advance_line) ?: sleb_append(out, line_delta);
		line_delta = 0;
	}
	return err ? err
		   : u8_append(out, (uint8_t)((unsigned int)(line_delta - LINE_BASE) +
					      LINE_RANGE * advance + OPCODE_BASE));
}

static int program_append(struct buffer *out, const struct perf_frames *frames, uint64_t text)
{
	static const uint8_t set_address[] = {0, 9, DW_LNE_set_address},
			     end[] = {0, 1, DW_LNE_end_sequence};
	uint32_t line = 1, file = 1;
	int err = buffer_append(out, set_address, sizeof(set_address)) ?: u64_append(out, text);

	for (uint32_t i = 0; !err && i < frames->count; i++) {
		const struct snapshot_frame *frame = &frames->frames[i];

		if (i && frame->filename != frame[-1].filename) {
			err = u8_append(out, DW_LNS_set_file) ?: uleb_append(out, ++file);
		}
		err = err ?: row_append(out, (int64_t)frame->line - line, i > 0);
		line = frame->line;
	}
	err = err ?: u8_append(out, DW_LNS_advance_pc);
	err = err ?: uleb_append(out, 1);
	return err ?: buffer_append(out, end, sizeof(end));
}

static int line_build(struct buffer *out, const struct perf_frames *frames, uint64_t text,
		      uint32_t slot_bytes)
{
	size_t unit;

	return unit_begin(out, &unit)
	       ?: line_header_append(out, frames, slot_bytes)
	       ?: program_append(out, frames, text)
	       ?: unit_end(out, unit);
}

/* One entry without children. Without DW_AT_comp_dir, names without a directory stay unchanged. */
static const uint8_t abbreviations[] = {
	1,
	DW_TAG_compile_unit,
	DW_CHILDREN_no,
	DW_AT_producer,
	DW_FORM_string,
	DW_AT_language,
	DW_FORM_data1,
	DW_AT_name,
	DW_FORM_string,
	DW_AT_stmt_list,
	DW_FORM_sec_offset,
	DW_AT_low_pc,
	DW_FORM_addr,
	DW_AT_high_pc,
	DW_FORM_data8,
	0,
	0,
	0,
};

static int info_build(struct buffer *out, uint64_t text, uint64_t bytes)
{
	static const char producer[] = "tracer", name[] = "Python";
	size_t unit;
	int err = unit_begin(out, &unit) ?: u16_append(out, 4);

	if (!err)
		err = u32_append(out, 0); /* offset in .debug_abbrev */
	err = err ?: u8_append(out, sizeof(uint64_t));
	err = err ?: u8_append(out, 1);
	err = err ?: buffer_append(out, producer, sizeof(producer));
	err = err ?: u8_append(out, DW_LANG_Python);
	err = err ?: buffer_append(out, name, sizeof(name));
	if (!err)
		err = u32_append(out, 0); /* offset in .debug_line */
	err = err ?: u64_append(out, text);
	err = err ?: u64_append(out, bytes);
	return err ?: unit_end(out, unit);
}

static int aranges_build(struct buffer *out, uint64_t text, uint64_t bytes)
{
	/* no segments, then padding */
	static const uint8_t sizes[] = {sizeof(uint64_t), 0, 0, 0, 0, 0};
	const uint64_t ranges[] = {text, bytes, 0, 0};
	size_t unit;
	int err = unit_begin(out, &unit) ?: u16_append(out, 2);

	if (!err)
		err = u32_append(out, 0); /* offset in .debug_info */
	err = err ?: buffer_append(out, sizes, sizeof(sizes));
	err = err ?: buffer_append(out, ranges, sizeof(ranges));
	return err ?: unit_end(out, unit);
}

/*
 * Slot i is at [text + i * slot_bytes, text + (i + 1) * slot_bytes). 0, -ENOMEM; -EFBIG: more
 * than 32-bit DWARF can hold. perf_dwarf_free() releases, also after an error.
 */
static int perf_dwarf_build(struct perf_dwarf *dwarf, const struct perf_frames *frames,
			    uint64_t text, uint32_t slot_bytes)
{
	uint64_t bytes = (uint64_t)frames->count * slot_bytes;

	return line_build(&dwarf->line, frames, text, slot_bytes)
	       ?: info_build(&dwarf->info, text, bytes)
	       ?: buffer_append(&dwarf->abbrev, abbreviations, sizeof(abbreviations))
	       ?: aranges_build(&dwarf->aranges, text, bytes);
}

static void perf_dwarf_free(struct perf_dwarf *dwarf)
{
	buffer_free(&dwarf->line);
	buffer_free(&dwarf->info);
	buffer_free(&dwarf->abbrev);
	buffer_free(&dwarf->aranges);
}

/* --- perf data image -------------------------------------------------------------------------- */

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
		return perf_name_append(out, function, 0) ?: buffer_append(out, "", 1);
	}
	if (!err && function[0]) {
		err = perf_name_append(out, function, 0) ?: buffer_append(out, ":", 1);
	}
	err = err ?: perf_name_append(out, strings_get(frames->strings, frame->filename), 0);
	return err ?: buffer_append(out, "", 1);
}

static int symbols_build(struct content *content, const struct perf_frames *frames,
			 Elf64_Section text)
{
	Elf64_Sym symbol = {0};
	int err = buffer_append(&content->symbols, &symbol, sizeof(symbol))
			  ?: buffer_append(&content->names, "", 1);

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
		err = buffer_append(&content->symbols, &symbol, sizeof(symbol))
			      ?: symbol_name_append(&content->names, frames,
						    &frames->frames[first]);
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
	int err = sections_add(elf, content) ?: segments_set(elf, segments);
	if (!err && elf_update(elf, ELF_C_WRITE) < 0)
		err = error_set(-EIO, "%s", elf_errmsg(-1));
	return err;
}

static int content_build(struct content *content, const struct perf_frames *frames)
{
	int err = text_build(&content->text, perf_image_text_bytes(frames))
	       ?: symbols_build(content, frames, TEXT)
	       ?: perf_dwarf_build(&content->dwarf, frames, PERF_IMAGE_TEXT, PERF_SLOT_BYTES);

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
