/* SPDX-License-Identifier: Apache-2.0 */
#include "export/json.h"

#include <stdint.h>
#include <string.h>

/* One code point from text, which is not empty; a byte that is not UTF-8 as its surrogate. Returns bytes
 * taken. */
static size_t utf8_take(const unsigned char *text, uint32_t *c)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t bytes = text[0] < 0x80    ? 1
		       : text[0] >= 0xf0 ? 4
		       : text[0] >= 0xe0 ? 3
		       : text[0] >= 0xc0 ? 2
					 : 0;

	if (bytes == 1) {
		*c = text[0];
		return 1;
	}
	*c = bytes ? text[0] & (0xffu >> (bytes + 1)) : 0;
	for (size_t i = 1; i < bytes; i++) {
		if ((text[i] & 0xc0) != 0x80)
			goto invalid; /* also at the final NUL */
		*c = *c << 6 | (text[i] & 0x3f);
	}
	if (bytes && text[0] < 0xf8 && *c >= least[bytes] && *c <= 0x10ffff)
		return bytes;
invalid:
	*c = 0xdc00u + text[0];
	return 1;
}

static void character_write(FILE *out, uint32_t c)
{
	static const char escaped[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
	const char *at = c && c < 0x80 ? strchr(escaped, (int)c) : NULL;

	if (at)
		fprintf(out, "\\%c", names[at - escaped]);
	else if (c >= 0x20 && c < 0x7f)
		putc((int)c, out);
	else if (c < 0x10000)
		fprintf(out, "\\u%04x", c);
	else
		fprintf(out, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
			0xdc00 + ((c - 0x10000) & 0x3ff));
}

void json_string(FILE *out, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	putc('"', out);
	while (*at) {
		uint32_t c;

		at += utf8_take(at, &c);
		character_write(out, c);
	}
	putc('"', out);
}
