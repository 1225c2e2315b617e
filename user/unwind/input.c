/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .eh_frame is found by its section, or, in a file whose section headers were removed, by the
 * segment PT_GNU_EH_FRAME, as the run-time unwinder finds it: that begins with {version, encodings
 * of the next three fields, address of .eh_frame, …} (Linux Standard Base, "The .eh_frame_hdr
 * section").
 */
#include "unwind/input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "elf/elf_section.h"
#include "unwind/table.h"

#define SECTION_MAX      (256u << 20) /* bytes of .eh_frame */
#define HEADER_BYTES     8
#define HEADER_VERSION   1
#define HEADER_RELATIVE4 0x1b /* the address is relative to itself, 4 bytes, signed */

/* Bytes of the file, which the caller frees. NULL: not in the file, or no memory. */
static uint8_t *bytes_read(int fd, uint64_t offset, size_t size)
{
	uint8_t *bytes = offset <= INT64_MAX - size ? malloc(size + !size) : NULL;
	size_t done = 0;

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

static int part_compare(const void *a, const void *b)
{
	const struct unwind_code *left = a, *right = b;

	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* Drops what overlaps with the part before in the file: only a hostile file has that. */
static int codes_check(struct unwind_codes *codes, uint64_t file_bytes)
{
	uint64_t end = 0, bytes = 0;
	size_t kept = 0;

	qsort(codes->parts, codes->count, sizeof(codes->parts[0]), part_compare);
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

static int codes_read(struct unwind_codes *codes, Elf *elf, int fd, uint64_t file_bytes)
{
	GElf_Phdr segment;
	int err;

	for (int i = 0; gelf_getphdr(elf, i, &segment); i++)
		if (segment.p_type == PT_LOAD && segment.p_flags & PF_X && segment.p_filesz &&
		    codes->count < UNWIND_CODE_MAX)
			codes->parts[codes->count++] =
				(struct unwind_code){.vaddr = segment.p_vaddr,
						     .offset = segment.p_offset,
						     .size = segment.p_filesz};
	err = codes_check(codes, file_bytes);
	for (size_t i = 0; i < codes->count && !err; i++) {
		struct unwind_code *part = &codes->parts[i];

		part->bytes = bytes_read(fd, part->offset, part->size);
		if (!part->bytes)
			err = -ENOMEM;
	}
	return err;
}

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

static uint8_t *section_read(Elf *elf, int fd, uint64_t *vaddr, size_t *size)
{
	GElf_Shdr header;
	uint64_t offset, bytes;

	if (elf_section_by_name(elf, ".eh_frame", &header)) {
		*vaddr = header.sh_addr;
		offset = header.sh_offset;
		bytes = header.sh_type == SHT_NOBITS ? 0 : header.sh_size;
	} else {
		*vaddr = header_find(elf, fd);
		bytes = *vaddr ? segment_bytes(elf, *vaddr, &offset) : 0;
	}
	*size = bytes < SECTION_MAX ? bytes : SECTION_MAX;
	return *size ? bytes_read(fd, offset, *size) : NULL;
}

static int frame_compare(const void *a, const void *b)
{
	const struct elf_frame *left = a, *right = b;

	return left->vaddr < right->vaddr ? -1 : left->vaddr > right->vaddr;
}

/* Decodes the entries; linkers leave them nearly in order. */
static int frames_decode(struct unwind_input *input, size_t size)
{
	const struct elf_frames_cursor begin = {
		.bytes = input->section, .size = size, .vaddr = input->section_vaddr};
	struct elf_frames_cursor cursor = begin;
	struct elf_frame frame;
	size_t count = 0;

	while (count < UNWIND_FUNCTIONS_MAX && elf_frames_next(&cursor, &frame))
		count++;
	if (!count)
		return error_set(-ENOENT, "an .eh_frame without an entry");
	input->frames = malloc(count * sizeof(*input->frames));
	if (!input->frames)
		return -ENOMEM;
	cursor = begin;
	while (input->frame_count < count && elf_frames_next(&cursor, &frame))
		input->frames[input->frame_count++] = frame;
	qsort(input->frames, count, sizeof(*input->frames), frame_compare);
	return 0;
}

int unwind_input_read(struct unwind_input *out, int fd)
{
	struct unwind_input input = {0};
	uint64_t file_bytes;
	size_t size;
	Elf *elf;
	int err = elf_section_begin(&elf, fd, &file_bytes);

	if (err)
		return err;
	input.section = section_read(elf, fd, &input.section_vaddr, &size);
	err = input.section ? frames_decode(&input, size) : error_set(-ENOENT, "no .eh_frame");
	if (!err)
		err = codes_read(&input.codes, elf, fd, file_bytes);
	elf_end(elf);
	if (err)
		unwind_input_free(&input);
	else
		*out = input;
	return err;
}

void unwind_input_free(struct unwind_input *input)
{
	for (size_t i = 0; i < input->codes.count; i++)
		free((void *)(uintptr_t)input->codes.parts[i].bytes);
	free(input->frames);
	free(input->section);
}
