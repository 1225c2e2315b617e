/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An entry is {length, id, …}; the length excludes the length field. An entry with id 0 is a CIE:
 * it is shared by others, and its augmentation gives the encoding of their addresses. In an FDE the
 * id is the distance back to its CIE, and the first address follows.
 */
#include "elf/elf_frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECTION_MAX   (64u << 20)
#define FUNCTIONS_MAX (1u << 20)
#define LONG_LENGTH   UINT32_MAX /* a 64-bit length follows; no linker emits these */

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

struct reader {
	const uint8_t *bytes;
	size_t at, end;
	int failed;
};

static uint8_t take_byte(struct reader *reader)
{
	reader->failed |= reader->at >= reader->end;
	return reader->failed ? 0 : reader->bytes[reader->at++];
}

static uint64_t take(struct reader *reader, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t)take_byte(reader) << 8 * i;
	return value;
}

/* Skips a LEB128 number. */
static void skip_leb(struct reader *reader)
{
	while (take_byte(reader) & 0x80)
		;
}

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

/* Encoding of the addresses in the FDEs of a CIE; reader.at is after the id of the CIE. */
static uint8_t cie_encoding(struct reader reader)
{
	const uint8_t *augmentation;
	uint8_t version = take_byte(&reader), encoding;

	augmentation = reader.bytes + reader.at;
	while (take_byte(&reader))
		;
	if (reader.failed || (version != 1 && version != 3))
		return ENCODING_UNKNOWN;
	if (!*augmentation)
		return ENCODING_ABSOLUTE;
	if (*augmentation++ != 'z')
		return ENCODING_UNKNOWN;
	skip_leb(&reader); /* alignment of code, and of data */
	skip_leb(&reader);
	if (version == 1)
		take_byte(&reader); /* the return address register */
	else
		skip_leb(&reader);
	skip_leb(&reader); /* length of the augmentation data */
	for (; *augmentation && !reader.failed; augmentation++) {
		if (*augmentation == 'R')
			encoding = take_byte(&reader);
		if (*augmentation == 'R')
			return reader.failed ? ENCODING_UNKNOWN : encoding;
		if (*augmentation == 'L')
			take_byte(&reader);
		else if (*augmentation == 'P')
			take(&reader, encoding_bytes(take_byte(&reader)));
	}
	return ENCODING_ABSOLUTE;
}

/* The first address of an FDE, at reader; 0: unknown. */
static uint64_t entry_start(struct reader *reader, uint8_t encoding, uint64_t vaddr)
{
	size_t bytes = encoding_bytes(encoding), at = reader->at;
	uint64_t value;

	if (!bytes || encoding & ~(ENCODING_FORMAT | ENCODING_RELATIVE))
		return 0;
	value = take(reader, bytes);
	if (bytes == 4 && (encoding & ENCODING_FORMAT) == ENCODING_SIGNED4)
		value = (uint64_t)(int64_t)(int32_t)value;
	if (reader->failed || !value)
		return 0;
	return encoding & ENCODING_RELATIVE ? vaddr + at + value : value;
}

size_t elf_frames_decode(const uint8_t *bytes, size_t size, uint64_t vaddr, uint64_t *starts,
			 size_t capacity)
{
	struct reader reader = {.bytes = bytes, .end = size};
	size_t cie = SIZE_MAX, count = 0;
	uint8_t encoding = ENCODING_UNKNOWN;

	while (size - reader.at >= 8) {
		uint64_t length = take(&reader, 4), id, start;
		size_t body = reader.at;

		/* The terminator of one object file; more may follow. */
		if (!length)
			continue;
		if (length == LONG_LENGTH || length < 4 || length > size - body)
			break;
		reader.end = body + length;
		id = take(&reader, 4);
		if (id && id <= body) {
			/* Most entries have the same CIE as the previous one. */
			if (cie != body - id) {
				struct reader of = {.bytes = bytes, .at = body - id, .end = size};

				cie = body - id;
				encoding = take(&of, 4) < 8 || take(&of, 4) ? ENCODING_UNKNOWN
									    : cie_encoding(of);
			}
			start = entry_start(&reader, encoding, vaddr);
			if (start && count < capacity)
				starts[count] = start;
			count += start != 0;
		}
		reader = (struct reader){.bytes = bytes, .at = body + length, .end = size};
	}
	return count;
}

int elf_frames_starts(struct elf_file *file, uint64_t **starts, size_t *count)
{
	uint64_t vaddr, size, *found = NULL;
	uint8_t *bytes;
	int got;

	if (elf_file_section(file, ".eh_frame", &vaddr, &size) || !size || size > SECTION_MAX)
		return -ENOENT;
	bytes = malloc(size);
	if (!bytes)
		return -ENOMEM;
	got = elf_file_read(file, vaddr, bytes, size);
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
