/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .eh_frame is found by its section, or, in a file whose section headers were removed, by the
 * segment PT_GNU_EH_FRAME, as the run-time unwinder finds it: that begins with {version, encodings
 * of the next three fields, address of .eh_frame, …} (Linux Standard Base, "The .eh_frame_hdr
 * section"). Code that it does not describe may be described by .debug_frame, which may be packed,
 * and in a separate debug file.
 */
#include "object/unwind/input.h"

#include <errno.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "object/elf/elf_section.h"
#include "object/unwind/calls.h"
#include "object/unwind/unwind_table.h"
#include "util/array.h"
#include "util/error.h"
#include "util/sorted.h"

/* --- codes ------------------------------------------------------------------------------------ */

/*
 * The machine code of an ELF file. Its section headers say which bytes of an executable segment are
 * code: linkers may put tables of constants into the same segment, tens of megabytes in LLVM. In a
 * segment without such a section all bytes count as code.
 */

/* Bytes of a file, which the caller frees. NULL: not in the file, or no memory. */
static uint8_t *unwind_bytes_read(int fd, uint64_t offset, size_t size)
{
	uint8_t *bytes = offset <= INT64_MAX - size ? malloc(size + !size) : NULL;
	size_t done = 0;

	if (bytes)
		huge_advise(bytes, size);
	while (bytes && done < size) {
		ssize_t got = pread(fd, bytes + done, size - done, (off_t)(offset + done));

		if (got > 0) {
			done += (size_t)got;
		} else if (!got || errno != EINTR) {
			free(bytes);
			return NULL;
		}
	}
	return bytes;
}

/* Drops what overlaps with the part before in the file: only a hostile file has that. */
static int codes_check(struct unwind_codes *codes, uint64_t file_bytes)
{
	uint64_t end = 0, bytes = 0;
	size_t kept = 0;

	SORT_BY(codes->parts, codes->count, offset);
	for (size_t i = 0; i < codes->count; i++) {
		const struct unwind_code *part = &codes->parts[i];

		if (part->offset < end || part->offset > file_bytes ||
		    part->size > file_bytes - part->offset || part->vaddr > UINT64_MAX - part->size)
			continue;
		end = part->offset + part->size;
		bytes += part->size;
		codes->parts[kept++] = *part;
	}
	codes->count = kept;
	return bytes > UNWIND_CODE_BYTES_MAX
		       ? error_set(-E2BIG, "more than %u MiB of code", UNWIND_CODE_BYTES_MAX >> 20)
		       : 0;
}

/* Adds the sections with code that lie within a segment. 0: there are none, or too many. */
static int sections_add(struct unwind_codes *codes, Elf *elf, const GElf_Phdr *segment)
{
	size_t before = codes->count;
	Elf_Scn *section = NULL;
	GElf_Shdr header;

	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, &header) || !(header.sh_flags & SHF_EXECINSTR) ||
		    header.sh_type == SHT_NOBITS || !header.sh_size ||
		    header.sh_addr - segment->p_vaddr >= segment->p_filesz ||
		    header.sh_size > segment->p_filesz - (header.sh_addr - segment->p_vaddr))
			continue;
		if (codes->count == UNWIND_CODE_MAX) {
			codes->count = before;
			break;
		}
		codes->parts[codes->count++] = (struct unwind_code){
			.vaddr = header.sh_addr,
			.offset = segment->p_offset + (header.sh_addr - segment->p_vaddr),
			.size = header.sh_size};
	}
	return codes->count > before;
}

/* 0; -E2BIG (error_set); -ENOMEM. Release with unwind_codes_free(), also after an error. */
static int unwind_codes_read(struct unwind_codes *out, Elf *elf, int fd, uint64_t file_bytes)
{
	GElf_Phdr segment;
	GElf_Ehdr header;

	out->is_arm64 = gelf_getehdr(elf, &header) && header.e_machine == EM_AARCH64;
	for (int i = 0; gelf_getphdr(elf, i, &segment); i++)
		if (segment.p_type == PT_LOAD && segment.p_flags & PF_X && segment.p_filesz &&
		    !sections_add(out, elf, &segment) && out->count < UNWIND_CODE_MAX)
			out->parts[out->count++] = (struct unwind_code){.vaddr = segment.p_vaddr,
									.offset = segment.p_offset,
									.size = segment.p_filesz};
	int err = codes_check(out, file_bytes);
	for (size_t i = 0; i < out->count && !err; i++) {
		struct unwind_code *part = &out->parts[i];

		part->bytes = unwind_bytes_read(fd, part->offset, part->size);
		if (!part->bytes)
			err = -ENOMEM;
	}
	return err;
}

static void unwind_codes_free(struct unwind_codes *codes)
{
	for (size_t i = 0; i < codes->count; i++)
		free((void *)(uintptr_t)codes->parts[i].bytes);
}

/* --- input ------------------------------------------------------------------------------------ */

#define SECTION_MAX      (256u << 20) /* bytes of .eh_frame */
#define HEADER_BYTES     8
#define HEADER_VERSION   1
#define HEADER_RELATIVE4 0x1b /* the address is relative to itself, 4 bytes, signed */

/* Where the bytes at vaddr are in the file, and how many follow in their segment. 0: nowhere. */
static uint64_t segment_bytes(Elf *elf, uint64_t vaddr, uint64_t *offset)
{
	GElf_Phdr segment;

	for (int i = 0; gelf_getphdr(elf, i, &segment); i++)
		if (segment.p_type == PT_LOAD && vaddr - segment.p_vaddr < segment.p_filesz) {
			*offset = segment.p_offset + (vaddr - segment.p_vaddr);
			return segment.p_filesz - (vaddr - segment.p_vaddr);
		}
	return 0;
}

/* The address of .eh_frame in PT_GNU_EH_FRAME. 0: none that is known. */
static uint64_t header_find(Elf *elf, int fd)
{
	GElf_Phdr segment;

	for (int i = 0; gelf_getphdr(elf, i, &segment); i++) {
		uint8_t header[HEADER_BYTES];
		int32_t distance;

		if (segment.p_type != PT_GNU_EH_FRAME || segment.p_offset > INT64_MAX ||
		    pread(fd, header, sizeof(header), (off_t)segment.p_offset) != HEADER_BYTES ||
		    header[0] != HEADER_VERSION || header[1] != HEADER_RELATIVE4)
			continue;
		memcpy(&distance, header + 4, sizeof(distance));
		return segment.p_vaddr + 4 + (uint64_t)(int64_t)distance;
	}
	return 0;
}

/* A section of entries within the file. */
struct input_part {
	uint64_t vaddr, offset;
	size_t size; /* 0: there is none */
};

static struct input_part frames_find(Elf *elf, int fd)
{
	struct input_part part = {0};
	uint64_t bytes;
	GElf_Shdr header;

	if (elf_section_by_name(elf, ".eh_frame", &header)) {
		part.vaddr = header.sh_addr;
		part.offset = header.sh_offset;
		bytes = header.sh_type == SHT_NOBITS ? 0 : header.sh_size;
	} else {
		part.vaddr = header_find(elf, fd);
		bytes = part.vaddr ? segment_bytes(elf, part.vaddr, &part.offset) : 0;
	}
	part.size = bytes < SECTION_MAX ? bytes : SECTION_MAX;
	return part;
}

/*
 * Appends a section's bytes, which it frees; NULL: there are none. *size becomes 0 then. 0,
 * -ENOMEM.
 */
static int section_append(struct unwind_input *input, uint8_t *bytes, size_t *size)
{
	if (!bytes) {
		*size = 0;
		return 0;
	}
	if (!input->section) {
		input->section = bytes;
		input->section_size = *size;
		return 0;
	}
	uint8_t *both = realloc(input->section, input->section_size + *size);
	if (both) {
		input->section = both;
		memcpy(both + input->section_size, bytes, *size);
		input->section_size += *size;
	}
	free(bytes);
	return both ? 0 : -ENOMEM;
}

/* The content of a packed section. NULL: it is damaged, too large, or packed in an unknown way. */
static uint8_t *section_unpack(Elf_Scn *section, uint64_t packed_size, size_t *size)
{
	const Elf_Data *data = NULL;
	uint8_t *bytes = NULL;
	GElf_Chdr header;

	/* libelf allocates whatever size the header says. */
	if (packed_size <= SECTION_MAX && gelf_getchdr(section, &header) &&
	    header.ch_size <= SECTION_MAX && elf_compress(section, 0, 0) >= 0)
		data = elf_getdata(section, NULL);
	if (data && data->d_buf && data->d_size)
		bytes = malloc(data->d_size);
	if (bytes) {
		memcpy(bytes, data->d_buf, data->d_size);
		*size = data->d_size;
	}
	return bytes;
}

/*
 * Appends .debug_frame of a file: the program's, or its debug file. Its addresses are never
 * relative, so its own is not needed. 1; 0: there is none; -ENOMEM.
 */
static int debug_frames_append(struct unwind_input *input, Elf *elf, int fd)
{
	GElf_Shdr header;
	Elf_Scn *section = elf_section_by_name(elf, ".debug_frame", &header);
	uint8_t *bytes;

	if (!section || header.sh_type == SHT_NOBITS)
		return 0;
	size_t size = header.sh_size < SECTION_MAX ? header.sh_size : SECTION_MAX;
	if (header.sh_flags & SHF_COMPRESSED)
		bytes = section_unpack(section, header.sh_size, &size);
	else
		bytes = size ? unwind_bytes_read(fd, header.sh_offset, size) : NULL;
	return section_append(input, bytes, &size) ?: size > 0;
}

/* The same of the debug file, which is not to be trusted either. */
static int debug_file_append(struct unwind_input *input, int debug_fd)
{
	uint64_t file_bytes;
	Elf *elf;

	if (debug_fd < 0 || elf_section_begin(&elf, debug_fd, &file_bytes))
		return 0;
	int err = debug_frames_append(input, elf, debug_fd);
	elf_end(elf);
	return err;
}

/* Of entries at one address, those of .eh_frame come first: the table takes the first. */
static int frame_compare(const void *a, const void *b)
{
	const struct elf_frame *left = a, *right = b;

	return CMP(left->vaddr, right->vaddr) ?: CMP(left->code, right->code);
}

/* Decodes the next entry of the sections, of which the first has `first` bytes. 1; 0: none. */
static int frame_next(struct elf_frames_cursor cursors[2], size_t first, struct elf_frame *out)
{
	if (elf_frames_next(&cursors[0], out))
		return 1;
	if (!elf_frames_next(&cursors[1], out))
		return 0;
	out->code += first;
	out->code_end += first;
	out->common.code += first;
	out->common.code_end += first;
	return 1;
}

/* Most linkers leave them in order. */
static void frames_sort(struct unwind_input *input)
{
	for (size_t i = 1; i < input->frame_count; i++)
		if (frame_compare(&input->frames[i - 1], &input->frames[i]) > 0) {
			qsort(input->frames, input->frame_count, sizeof(*input->frames),
			      frame_compare);
			return;
		}
}

/* Decodes the entries. first: bytes of .eh_frame. */
static int frames_decode(struct unwind_input *input, size_t first)
{
	const struct elf_frames_cursor begin[2] = {
		{.bytes = input->section, .size = first, .vaddr = input->section_vaddr},
		{.bytes = input->section + first,
		 .size = input->section_size - first,
		 .is_debug = 1},
	};
	struct elf_frames_cursor cursors[2] = {begin[0], begin[1]};
	struct elf_frame frame;
	size_t count = 0;

	while (count < UNWIND_FUNCTIONS_MAX && frame_next(cursors, first, &frame))
		count++;
	if (!count)
		return error_set(-ENOENT, "an .eh_frame without an entry");
	input->frames = malloc(count * sizeof(*input->frames));
	if (!input->frames)
		return -ENOMEM;
	memcpy(cursors, begin, sizeof(cursors));
	while (input->frame_count < count && frame_next(cursors, first, &frame))
		input->frames[input->frame_count++] = frame;
	frames_sort(input);
	return 0;
}

static int frames_read(struct unwind_input *input, Elf *elf, int fd, int debug_fd)
{
	struct input_part frames = frames_find(elf, fd);
	uint8_t *bytes = frames.size ? unwind_bytes_read(fd, frames.offset, frames.size) : NULL;
	int err = section_append(input, bytes, &frames.size);

	input->section_vaddr = frames.vaddr;
	err = err ?: debug_frames_append(input, elf, fd) ?: debug_file_append(input, debug_fd);
	if (err < 0)
		return err;
	return input->section ? frames_decode(input, frames.size)
			      : error_set(-ENOENT, "no .eh_frame, and no .debug_frame");
}

int unwind_input_read(struct unwind_input *out, int fd, int debug_fd)
{
	struct unwind_input input = {0};
	uint64_t file_bytes;
	Elf *elf;
	int err = elf_section_begin(&elf, fd, &file_bytes);

	if (err)
		return err;
	err = frames_read(&input, elf, fd, debug_fd)
		      ?: unwind_codes_read(&input.codes, elf, fd, file_bytes);
	elf_end(elf);
	if (err)
		unwind_input_free(&input);
	else
		*out = input;
	return err;
}

void unwind_input_free(struct unwind_input *input)
{
	unwind_codes_free(&input->codes);
	free(input->frames);
	free(input->section);
}
