/* SPDX-License-Identifier: Apache-2.0 */
#include <dwarf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "report/export/exporter.h"
#include "report/export/perf_data_frames.h"
#include "snapshot/estimate.h"
#include "util/arch.h"
#include "util/buffer.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/id_map.h"
#include "util/text.h"

/*
 * The layout of a perf.data file, as far as perf_data.c writes it. Sources:
 * include/uapi/linux/perf_event.h, tools/perf/Documentation/perf.data-file-format.txt.
 */

/*
 * The ELF file in which perf finds the names of Python's frames. Nothing in it ever runs: every
 * slot is one no-op of PERF_SLOT_BYTES in .text, a function of a file is a symbol over its slots,
 * and DWARF names the line of each slot. Samples point at the middle of a slot, so that readers
 * that subtract one from a return address stay in the same slot.
 */

#define PERF_SLOT_BYTES     4u
#define PERF_IMAGE_TEXT     0x1000u /* address of .text, and its offset in the file */
#define PERF_BUILD_ID_BYTES 20u

#define FRAMES_MAX 8160u /* limited by the 16-bit size of a record */
#define ATTR_BYTES PERF_ATTR_SIZE_VER5
/* Numbers of features, from tools/perf/util/header.h. */
enum { FEATURE_BUILD_ID = 2, FEATURE_ARCH = 6, FEATURE_EVENT_DESC = 12, FEATURES = 3 };
#define BUILD_ID_SIZE_KNOWN (1u << 15) /* in misc of a build-id record */

struct file_section {
	uint64_t offset, size;
};

struct file_header {
	char magic[8];
	uint64_t size, attr_size;
	struct file_section attrs, data, event_types;
	uint64_t features[4];
};

struct file_attr {
	uint8_t attr[ATTR_BYTES];
	struct file_section ids;
};

struct comm_record {
	struct perf_event_header header;
	uint32_t pid, tid;
	/* the name, padded to 8 bytes */
};

struct fork_record {
	struct perf_event_header header;
	uint32_t pid, ppid, tid, ptid;
	uint64_t time;
};

struct lost_record {
	struct perf_event_header header;
	uint64_t lost;
};

struct build_id {
	uint8_t bytes[PERF_BUILD_ID_BYTES];
	uint8_t size, reserved[3];
};

struct mmap2_record {
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t start, length, offset;
	uint8_t build_id_size, reserved[3], build_id[PERF_BUILD_ID_BYTES];
	uint32_t prot, flags;
	/* the file's name, padded to 8 bytes */
};

struct build_id_record {
	struct perf_event_header header;
	int32_t pid;
	struct build_id id;
	/* the file's name, padded to 8 bytes */
};

struct sample_record {
	struct perf_event_header header;
	uint64_t ip;
	uint32_t pid, tid;
	uint64_t time, period;
	uint64_t callchain_size;
	uint64_t callchain[1 + FRAMES_MAX]; /* a marker for user space, then addresses */
};

_Static_assert(sizeof(struct file_header) == 104, "perf tells old headers by their size");
_Static_assert(sizeof(struct mmap2_record) == 72, "as in the kernel");
_Static_assert(sizeof(struct build_id_record) == 36, "as in perf");
_Static_assert(sizeof(struct sample_record) <= UINT16_MAX, "the size in a record's header");

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

/* Bytes of .text, at least one slot. */
static uint64_t perf_image_text_bytes(const struct perf_frames *frames)
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

/*
 * Writes the image to fd, an empty file, and returns its build-id, a hash of everything that may
 * differ. 0; -ENOMEM; -EFBIG; -EIO and other errors of writing (error_set).
 */
static int perf_image_write(int fd, const struct perf_frames *frames,
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

/*
 * A perf.data file, in the form that `perf record` would write. It has one event, "live-bytes"
 * ("live-blocks"; in growth mode "growth-bytes", "growth-count") and one sample per trace: the
 * period is the live bytes, the callchain the traceback. So perf's sums are those of a report.
 *
 * perf needs neither a live process nor a /tmp/perf-PID.map: Python's frames are addresses in an
 * ELF file of our own (perf_image_write()). A MMAP2 record maps it where no process has memory,
 * into the hole between user space and the kernel's, so addresses of native code can appear
 * unchanged in the same callchains, with MMAP2 records of their own.
 *
 * perf opens the files of a process in the present mount namespace of the process with that PID, if
 * there is one; in a container's namespace it would not find our file. The namespace is that of the
 * process that maps the file. So the file is mapped by a process that cannot exist, and every
 * target is its fork.
 *
 * The file consists of a header, one attribute, records, and three features. Layout:
 * include/uapi/linux/perf_event.h and tools/perf/Documentation/perf.data-file-format.txt of the
 * kernel.
 */

#define IMAGE_SUFFIX  ".python"
#define IMAGE_ADDRESS (1ull << 60) /* not canonical, with 4 and with 5 levels of page tables */
#define IMAGE_PID     0x7fffffff   /* above the highest possible PID, 2^22 */

#define SAMPLE_TYPE                                                                                \
	(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD |                \
	 PERF_SAMPLE_CALLCHAIN)
#define FRAMES_SHOWN 127u /* shown by perf, unless --max-stack is given */
/*
 * Not a software event of the kernel. PERF_COUNT_SW_DUMMY would work, but perf script leaves its
 * samples blank.
 */
#define EVENT_NOT_COUNTED 0x747261636572ull
#define ALIGN8(bytes)     (((bytes) + 7) & ~(size_t)7)

struct perf_data_writer {
	const struct snapshot *snapshot;
	const struct perf_frames *frames;
	struct outfile *file;
	const char *event;
	int counts;
	char image[PATH_MAX];
	uint8_t build_id[PERF_BUILD_ID_BYTES];
	uint32_t longest; /* traceback, in frames */
	uint64_t cut;     /* samples whose oldest frames do not fit */
};

static uint32_t sample_frames(const struct perf_data_writer *writer,
			      const struct snapshot_trace *trace)
{
	uint32_t nframe = writer->snapshot->tracebacks[trace->traceback].nframe;

	return nframe < FRAMES_MAX ? nframe : FRAMES_MAX;
}

static uint16_t sample_bytes(uint32_t frames)
{
	return (uint16_t)(offsetof(struct sample_record, callchain) +
			  (1 + frames) * sizeof(uint64_t));
}

/* Appends a header and a string, padded to a multiple of 8 bytes. */
static int padded_append(struct buffer *out, const void *head, size_t bytes, const char *text)
{
	static const char padding[8];
	size_t size = strlen(text) + 1;

	return buffer_append(out, head, bytes)
	       ?: buffer_append(out, text, size)
	       ?: buffer_append(out, padding, ALIGN8(size) - size);
}

/* The record of the process that maps the image. */
static int image_append(struct buffer *out, const struct perf_data_writer *writer)
{
	struct mmap2_record map = {
		.header = {.type = PERF_RECORD_MMAP2,
			   .misc = PERF_RECORD_MISC_USER | PERF_RECORD_MISC_MMAP_BUILD_ID,
			   .size = (uint16_t)(sizeof(map) + ALIGN8(strlen(writer->image) + 1))},
		.pid = IMAGE_PID,
		.tid = IMAGE_PID,
		.start = IMAGE_ADDRESS,
		.length = (perf_image_text_bytes(writer->frames) + 4095) & ~4095ull,
		.offset = PERF_IMAGE_TEXT,
		.build_id_size = PERF_BUILD_ID_BYTES,
		.prot = 1 | 4, /* PROT_READ | PROT_EXEC */
		.flags = 2,    /* MAP_PRIVATE */
	};

	memcpy(map.build_id, writer->build_id, sizeof(map.build_id));
	return padded_append(out, &map, sizeof(map), writer->image);
}

/*
 * Appends the fork of a process, unless it has been written (a process that called exec occurs
 * twice), and its name.
 */
static int process_append(struct buffer *out, const struct snapshot_meta *meta, int forked)
{
	const char *name = meta->name[0] ? meta->name : "python";
	char shown[4 * sizeof(meta->name)];
	size_t shown_bytes = ALIGN8(text_escape(shown, sizeof(shown), name) + 1);
	struct fork_record fork = {
		.header = {.type = PERF_RECORD_FORK, .size = sizeof(fork)},
		.pid = meta->pid,
		.tid = meta->pid,
		.ppid = IMAGE_PID,
		.ptid = IMAGE_PID,
		.time = meta->taken_realtime_ns,
	};
	struct comm_record comm = {
		.header = {.type = PERF_RECORD_COMM,
			   .size = (uint16_t)(sizeof(comm) + shown_bytes)},
		.pid = meta->pid,
		.tid = meta->pid,
	};
	int err = forked ? 0 : buffer_append(out, &fork, sizeof(fork));

	return err ?: padded_append(out, &comm, sizeof(comm), shown);
}

/* The records before the samples: the image, the processes, and the number of lost events. */
static int processes_append(struct buffer *out, const struct perf_data_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	const struct lost_record lost = {
		.header = {.type = PERF_RECORD_LOST_SAMPLES, .size = sizeof(lost)},
		.lost = snapshot_lost_events(snapshot),
	};
	struct id_map pids = {0};
	int err = image_append(out, writer);

	for (size_t i = 0; !err && i < snapshot_process_count(snapshot); i++) {
		const struct snapshot_meta *meta = snapshot_process(snapshot, i);

		err = process_append(out, meta, id_map_find(&pids, meta->pid) != ID_MAP_NONE)
			      ?: id_map_put(&pids, meta->pid, (uint32_t)i);
	}
	id_map_free(&pids);
	return err || !lost.lost ? err : buffer_append(out, &lost, sizeof(lost));
}

static int sample_write(struct perf_data_writer *writer, const struct snapshot_trace *trace)
{
	const struct snapshot *snapshot = writer->snapshot;
	const struct snapshot_meta *process = snapshot_process(snapshot, trace->process);
	uint32_t first = snapshot->tracebacks[trace->traceback].first,
		 nframe = sample_frames(writer, trace);
	struct sample_record sample;
	uint64_t size, count;

	sample.header = (struct perf_event_header){.type = PERF_RECORD_SAMPLE,
						   .misc = PERF_RECORD_MISC_USER,
						   .size = sample_bytes(nframe)};
	sample.pid = sample.tid = process->pid;
	sample.time = process->taken_realtime_ns;
	int err = estimate_trace_figures(estimate_chance_of(snapshot, trace), trace, &size, &count);
	if (err)
		return err;
	sample.period = writer->counts ? count : size;
	sample.callchain_size = 1 + nframe;
	sample.callchain[0] = PERF_CONTEXT_USER;
	for (uint32_t i = 0; i < nframe; i++)
		sample.callchain[1 + i] =
			IMAGE_ADDRESS + PERF_SLOT_BYTES / 2 +
			(uint64_t)writer->frames->slots[first + i] * PERF_SLOT_BYTES;
	sample.ip = sample.callchain[1];
	return outfile_write(writer->file, &sample, sample.header.size);
}

static void attr_set(const struct perf_data_writer *writer, uint8_t out[ATTR_BYTES])
{
	const struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = ATTR_BYTES,
		.config = EVENT_NOT_COUNTED,
		.sample_period = 1,
		.sample_type = SAMPLE_TYPE,
		.exclude_kernel = 1,
		.mmap = 1,
		.mmap2 = 1,
		.build_id = 1,
		.comm = 1,
		.task = 1,
		.use_clockid = 1,
		.clockid = CLOCK_REALTIME,
		.sample_max_stack = (uint16_t)writer->longest,
	};

	memcpy(out, &attr, ATTR_BYTES);
}

static int string_append(struct buffer *out, const char *text)
{
	uint32_t bytes = (uint32_t)ALIGN8(strlen(text) + 1);

	return padded_append(out, &bytes, sizeof(bytes), text);
}

static int event_desc_append(struct buffer *out, const struct perf_data_writer *writer)
{
	const uint32_t head[] = {1, ATTR_BYTES}, ids = 0;
	uint8_t attr[ATTR_BYTES];
	int err = buffer_append(out, head, sizeof(head));

	attr_set(writer, attr);
	err = err ?: buffer_append(out, attr, sizeof(attr));
	err = err ?: buffer_append(out, &ids, sizeof(ids));
	return err ?: string_append(out, writer->event);
}

static int build_id_append(struct buffer *out, const struct perf_data_writer *writer)
{
	struct build_id_record record = {
		.header = {.misc = PERF_RECORD_MISC_USER | BUILD_ID_SIZE_KNOWN,
			   .size = (uint16_t)(sizeof(record) + ALIGN8(strlen(writer->image) + 1))},
		.pid = -1, /* of no particular process */
		.id.size = PERF_BUILD_ID_BYTES,
	};

	memcpy(record.id.bytes, writer->build_id, sizeof(record.id.bytes));
	return padded_append(out, &record, sizeof(record), writer->image);
}

/*
 * The features in the order of their numbers: first a table of their sections, then the sections.
 */
static int features_write(const struct perf_data_writer *writer, uint64_t offset)
{
	struct file_section sections[FEATURES];
	struct buffer body = {0};
	int err = 0;

	for (int i = 0; !err && i < FEATURES; i++) {
		size_t start = body.size;

		err = i == 0   ? build_id_append(&body, writer)
		      : i == 1 ? string_append(&body, ARCH_UNAME)
			       : event_desc_append(&body, writer);
		sections[i] = (struct file_section){.offset = offset + sizeof(sections) + start,
						    .size = body.size - start};
	}
	err = err ?: outfile_write(writer->file, sections, sizeof(sections));
	err = err ?: outfile_write(writer->file, body.data, body.size);
	buffer_free(&body);
	return err;
}

static int header_write(const struct perf_data_writer *writer, uint64_t data_bytes)
{
	const struct file_header header = {
		.magic = {'P', 'E', 'R', 'F', 'I', 'L', 'E', '2'},
		.size = sizeof(header),
		.attr_size = sizeof(struct file_attr),
		.attrs = {sizeof(header), sizeof(struct file_attr)},
		.data = {sizeof(header) + sizeof(struct file_attr), data_bytes},
		.features = {1ull << FEATURE_BUILD_ID | 1ull << FEATURE_ARCH |
			     1ull << FEATURE_EVENT_DESC},
	};
	struct file_attr attr = {.ids = {sizeof(header), 0}};
	int err = outfile_write(writer->file, &header, sizeof(header));

	attr_set(writer, attr.attr);
	return err ?: outfile_write(writer->file, &attr, sizeof(attr));
}

static int data_write(struct perf_data_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	struct buffer process = {0};
	int err = processes_append(&process, writer);
	uint64_t bytes = process.size;

	for (size_t i = 0; i < snapshot->trace_count; i++) {
		uint32_t nframe = snapshot->tracebacks[snapshot->traces[i].traceback].nframe;

		bytes += sample_bytes(sample_frames(writer, &snapshot->traces[i]));
		writer->cut += nframe > FRAMES_MAX;
		if (nframe > writer->longest)
			writer->longest = nframe < FRAMES_MAX ? nframe : FRAMES_MAX;
	}
	err = err ?: header_write(writer, bytes);
	err = err ?: outfile_write(writer->file, process.data, process.size);
	buffer_free(&process);
	for (size_t i = 0; !err && i < snapshot->trace_count; i++)
		err = sample_write(writer, &snapshot->traces[i]);
	return err ? err
		   : features_write(writer,
				    sizeof(struct file_header) + sizeof(struct file_attr) + bytes);
}

static void caveats(const struct perf_data_writer *writer)
{
	log_info("the names of Python's functions are in %s, where perf looks for them; perf "
		 "buildid-cache --add FILE lets it find them anywhere",
		 writer->image);
	if (writer->longest > FRAMES_SHOWN)
		log_info("perf shows %u frames of a traceback; the longest has %u: use --max-stack "
			 "%u",
			 FRAMES_SHOWN, writer->longest, writer->longest);
	if (writer->cut)
		log_info("%llu samples have more frames than the %u that fit into one: the oldest "
			 "are omitted",
			 (unsigned long long)writer->cut, FRAMES_MAX);
}

/* In growth mode the samples are pools, and the large blocks that were traced beside them. */
static const char *event_name(const struct snapshot *snapshot, int counts)
{
	if (snapshot_is_growth(snapshot))
		return counts ? "growth-count" : "growth-bytes";
	return counts ? "live-blocks" : "live-bytes";
}

/* The image is written first, so that an existing perf.data always has its names. */
static int perf_export(const struct snapshot *snapshot, const struct export_opts *opts,
		       struct outfile *file)
{
	struct perf_frames frames;
	struct perf_data_writer writer = {
		.snapshot = snapshot,
		.frames = &frames,
		.file = file,
		.event = event_name(snapshot, opts->counts),
		.counts = opts->counts,
	};
	struct outfile *image;
	int err = outfile_beside(&image, file, IMAGE_SUFFIX);

	if (err == -ENOTSUP)
		return error_set(err, "a perf.data and its file of names are two files: use -o "
				      "FILE");
	if (err)
		return err;
	err = outfile_location(image, writer.image, sizeof(writer.image))
		      ?: perf_frames_new(&frames, snapshot);
	if (!err) {
		err = perf_image_write(outfile_fd(image), &frames, writer.build_id)
			      ?: data_write(&writer);
		perf_frames_free(&frames);
	}
	err = outfile_end(image, err);
	if (!err)
		caveats(&writer);
	return err;
}

const struct exporter export_perf = {
	.name = "perf",
	.help = "a perf.data for perf report, script and annotate; a file with the functions' "
		"names is written beside it",
	.merged = 1,
	.write = perf_export,
};
