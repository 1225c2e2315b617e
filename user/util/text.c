/* SPDX-License-Identifier: Apache-2.0 */
#include "util/text.h"

#include <inttypes.h>
#include <string.h>

/* Bytes of the well-formed UTF-8 character at c; 0: there is none. The text ends with a NUL. */
static int character_bytes(const unsigned char *c)
{
	int bytes = *c < 0x80                 ? 1
		    : *c >= 0xc2 && *c < 0xe0 ? 2
		    : *c >> 4 == 0xe          ? 3
		    : *c >= 0xf0 && *c < 0xf5 ? 4
					      : 0;

	for (int i = 1; i < bytes; i++)
		if (c[i] >> 6 != 2)
			return 0;
	/* Overlong forms, surrogates, beyond U+10FFFF. */
	if ((*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] >= 0xa0) ||
	    (*c == 0xf0 && c[1] < 0x90) || (*c == 0xf4 && c[1] >= 0x90))
		return 0;
	return bytes;
}

/*
 * Is the character invisible, or does it change the direction or the lines of the text around it?
 * U+061C, U+200B to U+200F, U+2028 to U+202E, U+2060 to U+2069, U+FEFF, U+FFF9 to U+FFFB.
 */
static int character_hides(const unsigned char *c, int bytes)
{
	if (bytes == 2)
		return c[0] == 0xd8 && c[1] == 0x9c;
	if (bytes != 3)
		return 0;
	if (c[0] == 0xe2 && c[1] == 0x80)
		return (c[2] >= 0x8b && c[2] <= 0x8f) || (c[2] >= 0xa8 && c[2] <= 0xae);
	if (c[0] == 0xe2 && c[1] == 0x81)
		return c[2] >= 0xa0 && c[2] <= 0xa9;
	return c[0] == 0xef &&
	       ((c[1] == 0xbb && c[2] == 0xbf) || (c[1] == 0xbf && c[2] >= 0xb9 && c[2] <= 0xbb));
}

/* Writes the printable form of one character to shown; advances *at. */
static const char *character_show(char shown[TEXT_CHARACTER_MAX], const unsigned char **at)
{
	const unsigned char *c = *at;
	int bytes = character_bytes(c);

	/* A lone surrogate: a byte that is not UTF-8, as the disk has it, or a code unit. */
	if (c[0] == 0xed && c[1] >= 0xa0 && c[1] >> 6 == 2 && c[2] >> 6 == 2) {
		unsigned int unit = 0xd000u | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);

		snprintf(shown, TEXT_CHARACTER_MAX,
			 unit >= 0xdc80 && unit <= 0xdcff ? "\\x%02x" : "\\u%04x",
			 unit >= 0xdc80 && unit <= 0xdcff ? unit - 0xdc00 : unit);
		*at = c + 3;
		return shown;
	}

	/* C1 controls are two bytes in UTF-8 (c2 80 .. c2 9f). */
	if (bytes == 2 && c[0] == 0xc2 && c[1] < 0xa0)
		c++;
	else if ((bytes > 1 && !character_hides(c, bytes)) ||
		 (bytes == 1 && *c >= 0x20 && *c != 0x7f)) {
		memcpy(shown, c, bytes);
		shown[bytes] = '\0';
		*at += bytes;
		return shown;
	}
	*at = c + 1;
	snprintf(shown, TEXT_CHARACTER_MAX, "\\x%02x", *c);
	return shown;
}

void text_print(FILE *out, const char *text)
{
	char shown[TEXT_CHARACTER_MAX];

	for (const unsigned char *at = (const unsigned char *)text; *at;)
		fputs(character_show(shown, &at), out);
}

size_t text_escape(char *out, size_t capacity, const char *text)
{
	size_t length = 0;
	char shown[TEXT_CHARACTER_MAX];

	for (const unsigned char *at = (const unsigned char *)text;
	     *at && length + sizeof(shown) < capacity;) {
		strcpy(out + length, character_show(shown, &at));
		length += strlen(shown);
	}
	out[length] = '\0';
	return length;
}

char *text_count(char out[32], uint64_t count)
{
	char digits[24];
	int size = snprintf(digits, sizeof(digits), "%" PRIu64, count), at = 0;

	for (int i = 0; i < size; i++) {
		if (i && (size - i) % 3 == 0)
			out[at++] = ',';
		out[at++] = digits[i];
	}
	out[at] = '\0';
	return out;
}

bool text_is_plain(const char *text)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789_./@:-";

	return *text && *text != '-' && !text[strspn(text, plain)];
}
