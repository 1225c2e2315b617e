/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .eh_frame is found by its section, or, in a file whose section headers were removed, by the
 * segment PT_GNU_EH_FRAME, as the run-time unwinder finds it: that begins with {version, encodings
 * of the next three fields, address of .eh_frame, …} (Linux Standard Base, "The .eh_frame_hdr
 * section"). Code that it does not describe may be described by .debug_frame, which may be packed,
 * and in a separate debug file.
 */
#include "unwind/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "elf/elf_section.h"
#include "unwind/codes.h"

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
struct part {
	uint64_t vaddr, offset;
	size_t size; /* 0: there is none */
};

static struct part frames_find(Elf *elf, int fd)
{
	struct part part = {0};
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
	uint8_t *both;

	if (!bytes) {
		*size = 0;
		return 0;
	}
	if (!input->section) {
		input->section = bytes;
		input->section_size = *size;
		return 0;
	}
	both = realloc(input->section, input->section_size + *size);
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
	size_t size;
	int err;

	if (!section || header.sh_type == SHT_NOBITS)
		return 0;
	size = header.sh_size < SECTION_MAX ? header.sh_size : SECTION_MAX;
	if (header.sh_flags & SHF_COMPRESSED)
		bytes = section_unpack(section, header.sh_size, &size);
	else
		bytes = size ? unwind_bytes_read(fd, header.sh_offset, size) : NULL;
	err = section_append(input, bytes, &size);
	return err ? err : size > 0;
}

/* The same of the debug file, which is not to be trusted either. */
static int debug_file_append(struct unwind_input *input, int debug_fd)
{
	uint64_t file_bytes;
	Elf *elf;
	int err;

	if (debug_fd < 0 || elf_section_begin(&elf, debug_fd, &file_bytes))
		return 0;
	err = debug_frames_append(input, elf, debug_fd);
	elf_end(elf);
	return err;
}

/* Of entries at one address, those of .eh_frame come first: the table takes the first. */
static int frame_compare(const void *a, const void *b)
{
	const struct elf_frame *left = a, *right = b;

	if (left->vaddr != right->vaddr)
		return left->vaddr < right->vaddr ? -1 : 1;
	return left->code < right->code ? -1 : left->code > right->code;
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
	struct part frames = frames_find(elf, fd);
	uint8_t *bytes = frames.size ? unwind_bytes_read(fd, frames.offset, frames.size) : NULL;
	int err = section_append(input, bytes, &frames.size);

	input->section_vaddr = frames.vaddr;
	if (!err)
		err = debug_frames_append(input, elf, fd);
	if (!err)
		err = debug_file_append(input, debug_fd);
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
	err = frames_read(&input, elf, fd, debug_fd);
	if (!err)
		err = unwind_codes_read(&input.codes, elf, fd, file_bytes);
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
