/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <string.h>

/* One character of text, at most four bytes of it, as it is to be shown; moves *at on. */
static const char *character_show(char shown[5], const unsigned char **at)
{
	const unsigned char *c = (*at)++;

	/* C1 controls are two bytes in UTF-8 (c2 80 .. c2 9f). */
	if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
		c = (*at)++;
	else if (*c >= 0x20 && *c != 0x7f)
		return memcpy(shown, (char[]){(char)*c, 0}, 2);
	snprintf(shown, 5, "\\x%02x", *c);
	return shown;
}

void text_print(FILE *out, const char *text)
{
	char shown[5];

	for (const unsigned char *at = (const unsigned char *)text; *at;)
		fputs(character_show(shown, &at), out);
}

size_t text_escape(char *out, size_t room, const char *text)
{
	size_t length = 0;
	char shown[5];

	for (const unsigned char *at = (const unsigned char *)text; *at && length + sizeof(shown) < room;) {
		strcpy(out + length, character_show(shown, &at));
		length += strlen(shown);
	}
	out[length] = '\0';
	return length;
}
