/* SPDX-License-Identifier: Apache-2.0 */
#include "util/json.h"

#include <inttypes.h>
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

void json_quote(FILE *out, const char *text)
{
	putc_unlocked('"', out);
	while (*text) {
		uint32_t c;

		text += utf8_take(text, &c);
		character_write(out, c);
	}
	putc_unlocked('"', out);
}

FILE *json_value(struct json *json, const char *key)
{
	if (json->more)
		fputs(", ", json->out);
	json->more = 1;
	if (key)
		fprintf(json->out, "\"%s\": ", key);
	return json->out;
}

void json_open(struct json *json, const char *key, char bracket)
{
	putc(bracket, json_value(json, key));
	json->more = 0;
}

void json_close(struct json *json, char bracket)
{
	putc(bracket, json->out);
	json->more = 1;
}

void json_end(struct json *json)
{
	json_close(json, '}');
	putc('\n', json->out);
}

void json_text(struct json *json, const char *key, const char *text)
{
	if (text)
		json_quote(json_value(json, key), text);
	else
		json_none(json, key);
}

void json_unsigned(struct json *json, const char *key, uint64_t value)
{
	fprintf(json_value(json, key), "%" PRIu64, value);
}

void json_signed(struct json *json, const char *key, int64_t value)
{
	fprintf(json_value(json, key), "%" PRId64, value);
}

void json_bool(struct json *json, const char *key, int value)
{
	fputs(value ? "true" : "false", json_value(json, key));
}

void json_fixed(struct json *json, const char *key, double value, int decimals)
{
	fprintf(json_value(json, key), "%.*f", decimals, value);
}

void json_float(struct json *json, const char *key, double value)
{
	fprintf(json_value(json, key), "%.6g", value);
}

void json_none(struct json *json, const char *key)
{
	fputs("null", json_value(json, key));
}

void json_members(struct json *json, const struct json_number *numbers)
{
	for (; numbers->key; numbers++)
		json_unsigned(json, numbers->key, numbers->value);
}

void json_member(FILE *out, const char *key, const char *value)
{
	fprintf(out, "\"%s\": ", key);
	json_quote(out, value);
}
