/* SPDX-License-Identifier: Apache-2.0 */
#include "util/json.h"

#include <stdint.h>
#include <string.h>

#include "util/utf8.h"

static void character_write(FILE *out, uint32_t c)
{
	static const char escaped[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
	const char *at = c && c < 0x80 ? strchr(escaped, (int)c) : NULL;

	if (at)
		fprintf(out, "\\%c", names[at - escaped]);
	else if (c >= 0x20 && c < 0x7f)
		putc_unlocked((int)c, out);
	else if (c < 0x10000)
		fprintf(out, "\\u%04x", c);
	else
		fprintf(out, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
			0xdc00 + ((c - 0x10000) & 0x3ff));
}

void json_string(FILE *out, const char *text)
{
	putc_unlocked('"', out);
	while (*text) {
		uint32_t c;

		text += utf8_take(text, &c);
		character_write(out, c);
	}
	putc_unlocked('"', out);
}

void json_member(FILE *out, const char *key, const char *value)
{
	fprintf(out, "\"%s\": ", key);
	json_string(out, value);
}
