/* SPDX-License-Identifier: Apache-2.0 */
/* Reads little-endian numbers from bytes that are not trusted, one after the other. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* After a read beyond end, failed is set and all further reads return 0. */
struct elf_reader {
	const uint8_t *bytes;
	size_t at, end;
	int failed;
};

static inline uint8_t elf_take_byte(struct elf_reader *reader)
{
	reader->failed |= reader->at >= reader->end;
	return reader->failed ? 0 : reader->bytes[reader->at++];
}

/* A number of at most 8 bytes. */
static inline uint64_t elf_take(struct elf_reader *reader, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t)elf_take_byte(reader) << 8 * i;
	return value;
}

static inline void elf_skip(struct elf_reader *reader, uint64_t bytes)
{
	if (bytes > reader->end - reader->at)
		reader->failed = 1;
	else
		reader->at += bytes;
}

/* LEB128 numbers: seven bits a byte; bits beyond 64 are dropped. */
static inline uint64_t elf_take_leb(struct elf_reader *reader, unsigned *bits)
{
	uint64_t value = 0;
	uint8_t byte;

	*bits = 0;
	do {
		byte = elf_take_byte(reader);
		if (*bits < 64)
			value |= (uint64_t)(byte & 0x7f) << *bits;
		*bits += *bits < 64 ? 7 : 0;
	} while (byte & 0x80);
	return value;
}

static inline uint64_t elf_take_uleb(struct elf_reader *reader)
{
	unsigned bits;

	return elf_take_leb(reader, &bits);
}

static inline int64_t elf_take_sleb(struct elf_reader *reader)
{
	unsigned bits;
	uint64_t value = elf_take_leb(reader, &bits);

	if (bits < 64 && value >> (bits - 1) & 1)
		value |= UINT64_MAX << bits;
	return (int64_t)value;
}
