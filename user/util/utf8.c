/* SPDX-License-Identifier: Apache-2.0 */
#include "util/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

size_t utf8_from_python(char *out, const uint8_t *data, uint32_t kind, uint32_t bytes)
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

/* Bytes of "x80" to "xff" or "ud800" to "udfff" at text, which has `bytes`; 0: another text. */
static size_t escape_bytes(const char *text, size_t bytes)
{
	static const char hex[] = "0123456789abcdef";
	size_t digits;

	if (bytes >= 3 && text[0] == 'x' && memchr(hex + 8, text[1], 8))
		digits = 2;
	else if (bytes >= 5 && text[0] == 'u' && text[1] == 'd' && memchr(hex + 8, text[2], 8))
		digits = 4;
	else
		return 0;
	for (size_t i = 1; i <= digits; i++)
		if (!memchr(hex, text[i], 16))
			return 0;
	return digits + 1;
}

/* The backslashes at text. *escape: the bytes of what looks like an escape after them, or 0. */
static size_t run_bytes(const char *text, size_t bytes, size_t *escape)
{
	size_t run = 0;

	while (run < bytes && text[run] == '\\')
		run++;
	*escape = run ? escape_bytes(text + run, bytes - run) : 0;
	return run;
}

static bool is_surrogate(const char *text)
{
	uint32_t c = 0;

	if (*text)
		utf8_take(text, &c);
	return c >= 0xd800 && c <= 0xdfff;
}

size_t utf8_escape(char *out, const char *text)
{
	size_t length = 0, left = strlen(text);

	while (left) {
		size_t escape, run = run_bytes(text, left, &escape), taken;
		uint32_t c = 0;

		if (run) {
			int is_doubled = escape || is_surrogate(text + run);

			memset(out + length, '\\', run << is_doubled);
			length += run << is_doubled;
			taken = run;
		} else {
			taken = utf8_take(text, &c);
			if (c >= 0xdc80 && c <= 0xdcff)
				length += (size_t)sprintf(out + length, "\\x%02x", c - 0xdc00);
			else if (c >= 0xd800 && c <= 0xdfff)
				length += (size_t)sprintf(out + length, "\\u%04x", c);
			else {
				memcpy(out + length, text, taken);
				length += taken;
			}
		}
		text += taken;
		left -= taken;
	}
	out[length] = '\0';
	return length;
}

size_t utf8_unescape(char *out, const char *text, size_t bytes)
{
	size_t length = 0, at = 0;

	while (at < bytes) {
		size_t escape, run = run_bytes(text + at, bytes - at, &escape);
		size_t kept = escape ? run / 2 : run;

		if (!run) {
			out[length++] = text[at++];
			continue;
		}
		memset(out + length, '\\', kept);
		length += kept;
		at += run;
		if (escape && run % 2) {
			uint32_t c =
				(uint32_t)strtoul((char[]){text[at + 1], text[at + 2],
							   escape > 3 ? text[at + 3] : '\0',
							   escape > 3 ? text[at + 4] : '\0', '\0'},
						  NULL, 16);

			length += character_put(out + length, escape > 3 ? c : 0xdc00 + c);
			at += escape;
		}
	}
	out[length] = '\0';
	return length;
}
