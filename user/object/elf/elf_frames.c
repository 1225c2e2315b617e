/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An entry is {length, id, …}; the length excludes the length field. An entry with id 0 is a CIE:
 * it is shared by others, and its augmentation gives the encoding of their addresses. In an FDE the
 * id is the distance back to its CIE, and the first address follows. In .debug_frame the id of a
 * CIE is all ones, and that of an FDE the offset of its CIE in the section.
 */
#include "object/elf/elf_frames.h"

#include <errno.h>
#include <stdlib.h>

#define SECTION_MAX   (64u << 20)
#define FUNCTIONS_MAX (1u << 20)
#define LONG_LENGTH   UINT32_MAX /* a 64-bit length follows; no linker emits these */
#define COMMON_ID     0u
#define DEBUG_ID      UINT32_MAX /* of a CIE in .debug_frame */
#define ADDRESS_BYTES 8

enum encoding {
	ENCODING_ABSOLUTE = 0x00,
	ENCODING_SIGNED4 = 0x0b,
	ENCODING_SIGNED8 = 0x0c,
	ENCODING_UNSIGNED4 = 0x03,
	ENCODING_UNSIGNED8 = 0x04,
	ENCODING_FORMAT = 0x0f,
	ENCODING_RELATIVE = 0x10, /* relative to the position of the value */
	ENCODING_UNKNOWN = 0xff,
};

/* Bytes of an address; 0: unknown encoding. */
static size_t encoding_bytes(uint8_t encoding)
{
	switch (encoding & ENCODING_FORMAT) {
	case ENCODING_ABSOLUTE:
	case ENCODING_SIGNED8:
	case ENCODING_UNSIGNED8:
		return 8;
	case ENCODING_SIGNED4:
	case ENCODING_UNSIGNED4:
		return 4;
	default:
		return 0;
	}
}

/* The augmentation data that the letters of the augmentation string announce. */
static void common_augment(struct elf_frame_common *common, const uint8_t *letters,
			   struct elf_reader *reader)
{
	for (; *letters && !reader->failed; letters++) {
		if (*letters == 'R')
			common->encoding = elf_take_byte(reader);
		else if (*letters == 'L')
			elf_take_byte(reader);
		else if (*letters == 'P')
			elf_take(reader, encoding_bytes(elf_take_byte(reader)));
		else if (*letters == 'S')
			common->signal = 1;
		else
			break; /* what follows is not known */
	}
}

/* What DWARF 4 has added: the sizes of addresses and of segment selectors. 1: they are as usual. */
static int sizes_take(struct elf_reader *reader)
{
	uint64_t address = elf_take_byte(reader), selector = elf_take_byte(reader);

	return address == ADDRESS_BYTES && !selector;
}

/* reader.at is after the id of the CIE, reader.end its end. Encoding UNKNOWN: it is damaged. */
static struct elf_frame_common common_decode(struct elf_reader reader)
{
	struct elf_frame_common common = {.encoding = ENCODING_ABSOLUTE, .code_end = reader.end};
	static const struct elf_frame_common unknown = {.encoding = ENCODING_UNKNOWN};
	uint8_t version = elf_take_byte(&reader);
	const uint8_t *letters = reader.bytes + reader.at;

	while (elf_take_byte(&reader))
		;
	if (reader.failed || (version != 1 && version != 3 && version != 4) ||
	    (*letters && *letters != 'z') || (version == 4 && !sizes_take(&reader)))
		return unknown;
	common.code_align = elf_take_uleb(&reader);
	common.data_align = elf_take_sleb(&reader);
	common.return_register = version == 1 ? elf_take_byte(&reader) : elf_take_uleb(&reader);
	common.code = reader.at;
	if (*letters) {
		uint64_t bytes = elf_take_uleb(&reader);
		struct elf_reader data = reader;

		common.augmented = 1;
		common_augment(&common, letters + 1, &data);
		elf_skip(&reader, bytes);
		common.code = reader.at;
		reader.failed |= data.failed;
	}
	return reader.failed ? unknown : common;
}

uint64_t elf_frames_address(struct elf_reader *reader, uint8_t encoding, uint64_t vaddr)
{
	size_t bytes = encoding_bytes(encoding), at = reader->at;

	if (!bytes || encoding & ~(ENCODING_FORMAT | ENCODING_RELATIVE))
		return 0;
	uint64_t value = elf_take(reader, bytes);
	if (bytes == 4 && (encoding & ENCODING_FORMAT) == ENCODING_SIGNED4)
		value = (uint64_t)(int64_t)(int32_t)value;
	if (reader->failed || !value)
		return 0;
	return encoding & ENCODING_RELATIVE ? vaddr + at + value : value;
}

/* Decodes the CIE at an offset of the section, if it is not the one of the previous entry. */
static void common_find(struct elf_frames_cursor *cursor, size_t at)
{
	struct elf_reader reader = {.bytes = cursor->bytes, .at = at, .end = cursor->size};
	uint64_t length = elf_take(&reader, 4);

	if (cursor->common_at == at + 1)
		return;
	cursor->common_at = at + 1;
	cursor->common.encoding = ENCODING_UNKNOWN;
	if (length < 8 || length > cursor->size - reader.at)
		return;
	reader.end = reader.at + length;
	if (elf_take(&reader, 4) == (cursor->is_debug ? DEBUG_ID : COMMON_ID))
		cursor->common = common_decode(reader);
}

/* Decodes an FDE; reader.at is after its id. 0: its address is not known. */
static int frame_decode(const struct elf_frames_cursor *cursor, struct elf_reader reader,
			struct elf_frame *out)
{
	struct elf_frame frame = {.common = cursor->common, .code_end = reader.end};
	uint8_t encoding = frame.common.encoding;

	frame.vaddr = elf_frames_address(&reader, encoding, cursor->vaddr);
	if (!frame.vaddr)
		return 0;
	frame.bytes = elf_take(&reader, encoding_bytes(encoding));
	if (frame.common.augmented)
		elf_skip(&reader, elf_take_uleb(&reader));
	frame.code = reader.at;
	if (reader.failed)
		frame.bytes = 0;
	*out = frame;
	return 1;
}

/* Where the CIE of an entry with this id is. 1; 0: it is a CIE itself, or damaged. */
static int common_place(const struct elf_frames_cursor *cursor, uint64_t id, size_t body,
			size_t *at)
{
	*at = cursor->is_debug ? id : body - id;
	return cursor->is_debug ? id != DEBUG_ID && id < cursor->size
				: id != COMMON_ID && id <= body;
}

int elf_frames_next(struct elf_frames_cursor *cursor, struct elf_frame *out)
{
	while (cursor->size - cursor->at >= 8) {
		struct elf_reader reader = {
			.bytes = cursor->bytes, .at = cursor->at, .end = cursor->size};
		uint64_t length = elf_take(&reader, 4), id;
		size_t body = reader.at, common;

		cursor->at = body;
		/* The terminator of one object file; more may follow. */
		if (!length)
			continue;
		if (length == LONG_LENGTH || length < 4 || length > cursor->size - body)
			break;
		reader.end = cursor->at = body + length;
		id = elf_take(&reader, 4);
		if (!common_place(cursor, id, body, &common))
			continue;
		common_find(cursor, common);
		if (frame_decode(cursor, reader, out))
			return 1;
	}
	cursor->at = cursor->size;
	return 0;
}

size_t elf_frames_decode(const uint8_t *bytes, size_t size, uint64_t vaddr, uint64_t *starts,
			 size_t capacity)
{
	struct elf_frames_cursor cursor = {.bytes = bytes, .size = size, .vaddr = vaddr};
	struct elf_frame frame;
	size_t count = 0;

	for (; elf_frames_next(&cursor, &frame); count++)
		if (count < capacity)
			starts[count] = frame.vaddr;
	return count;
}

int elf_frames_starts(struct elf_file *file, uint64_t **starts, size_t *count)
{
	uint64_t vaddr, size, *found = NULL;

	if (elf_file_section(file, ".eh_frame", &vaddr, &size) || !size || size > SECTION_MAX)
		return -ENOENT;
	uint8_t *bytes = malloc(size);
	if (!bytes)
		return -ENOMEM;
	int got = elf_file_read(file, vaddr, bytes, size);
	*count = got > 0 ? elf_frames_decode(bytes, (size_t)got, vaddr, NULL, 0) : 0;
	if (*count > FUNCTIONS_MAX)
		*count = FUNCTIONS_MAX;
	if (*count)
		found = calloc(*count, sizeof(*found));
	if (found)
		elf_frames_decode(bytes, (size_t)got, vaddr, found, *count);
	free(bytes);
	if (!*count)
		return -ENOENT;
	*starts = found;
	return found ? 0 : -ENOMEM;
}
