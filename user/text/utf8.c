/* SPDX-License-Identifier: Apache-2.0 */
#include "text/utf8.h"

#include <string.h>

#define REPLACEMENT 0xfffdu

/* Bytes of the sequence that begins with this byte; 0: no sequence does. */
static size_t sequence_bytes(unsigned char first)
{
	if (first < 0x80)
		return 1;
	if (first < 0xc0 || first >= 0xf8)
		return 0;
	return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
}

/*
 * Decodes the character at text, reading at most capacity bytes. Returns its bytes; 0: no complete
 * character.
 */
static size_t character_read(const unsigned char *text, size_t capacity, uint32_t *c)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t bytes = sequence_bytes(text[0]);

	if (!bytes || bytes > capacity)
		return 0;
	if (bytes == 1) {
		*c = text[0];
		return 1;
	}
	*c = text[0] & (0xffu >> (bytes + 1));
	for (size_t i = 1; i < bytes; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0; /* also at the final NUL */
		*c = *c << 6 | (text[i] & 0x3f);
	}
	return *c >= least[bytes] && *c <= 0x10ffff ? bytes : 0;
}

/* UTF-8 of one code point; lone surrogates as WTF-8. At most 4 bytes. */
static size_t character_put(char *out, uint32_t c)
{
	if (!c || c > 0x10ffff)
		c = REPLACEMENT;
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

size_t utf8_encode(char *out, const uint8_t *data, uint32_t kind, uint32_t bytes)
{
	size_t size = 0;

	for (uint32_t i = 0; i < bytes; i += kind) {
		uint32_t c = data[i];
		uint16_t c2;

		if (kind == 2) {
			memcpy(&c2, data + i, sizeof(c2));
			c = c2;
		} else if (kind == 4) {
			memcpy(&c, data + i, sizeof(c));
		}
		size += character_put(out + size, c);
	}
	return size;
}

size_t utf8_take(const char *text, uint32_t *c)
{
	size_t bytes = character_read((const unsigned char *)text, 4, c);

	if (bytes)
		return bytes;
	*c = 0xdc00u + (unsigned char)text[0];
	return 1;
}

size_t utf8_fsencode(char *out, const char *text)
{
	size_t length = 0;

	while (*text) {
		uint32_t c;
		size_t bytes = utf8_take(text, &c);

		if (c >= 0xdc80 && c <= 0xdcff) {
			out[length++] = (char)(c - 0xdc00);
		} else {
			memmove(out + length, text, bytes);
			length += bytes;
		}
		text += bytes;
	}
	out[length] = '\0';
	return length;
}

int utf8_valid(const char *text, size_t bytes)
{
	while (bytes) {
		uint32_t c;
		size_t taken = *text ? character_read((const unsigned char *)text, bytes, &c) : 0;

		if (!taken)
			return 0;
		text += taken;
		bytes -= taken;
	}
	return 1;
}
