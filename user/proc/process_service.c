/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/process_service.h"

#include <ctype.h>
#include <string.h>

#include "proc/process.h"
#include "util/buffer.h"

#define ENVIRONMENT_MAX (64u * 1024)

static int hex_digit(char digit)
{
	return isdigit((unsigned char)digit) ? digit - '0' : (digit | 0x20) - 'a' + 10;
}

/* The byte at *at, which may be percent-encoded; advances *at. */
static char byte_take(const char **at, const char *end)
{
	const char *from = *at;

	*at = from + 1;
	if (*from != '%' || end - from < 3 || !isxdigit((unsigned char)from[1]) ||
	    !isxdigit((unsigned char)from[2]))
		return *from;
	*at = from + 3;
	return (char)(hex_digit(from[1]) << 4 | hex_digit(from[2]));
}

/* Decodes a value, without the spaces around it. */
static void value_set(char out[PROCESS_SERVICE_TEXT], const char *value, const char *end)
{
	size_t bytes = 0;
	char byte;

	while (value < end && *value == ' ')
		value++;
	while (end > value && end[-1] == ' ')
		end--;
	while (value < end && bytes < PROCESS_SERVICE_TEXT - 1 && (byte = byte_take(&value, end)))
		out[bytes++] = byte;
	out[bytes] = '\0';
}

/* What follows a prefix of a text of that many bytes; NULL: it has another one. */
static const char *after(const char *text, size_t bytes, const char *prefix)
{
	size_t length = strlen(prefix);

	return bytes >= length && !memcmp(text, prefix, length) ? text + length : NULL;
}

/* "KEY=VALUE,KEY=VALUE" */
static void attributes_parse(const char *at, const char *end, struct process_service *out)
{
	while (at < end) {
		const char *comma = memchr(at, ',', (size_t)(end - at)), *value;

		comma = comma ? comma : end;
		while (at < comma && *at == ' ')
			at++;
		if ((value = after(at, (size_t)(comma - at), "service.name=")))
			value_set(out->name, value, comma);
		else if ((value = after(at, (size_t)(comma - at), "service.version=")))
			value_set(out->version, value, comma);
		at = comma + 1;
	}
}

void process_service_parse(const char *environment, size_t bytes, struct process_service *out)
{
	char name[PROCESS_SERVICE_TEXT] = "";

	*out = (struct process_service){0};
	for (size_t at = 0; at < bytes;) {
		const char *word = environment + at, *value;
		size_t length = strnlen(word, bytes - at);

		if ((value = after(word, length, "OTEL_SERVICE_NAME=")))
			value_set(name, value, word + length);
		else if ((value = after(word, length, "OTEL_RESOURCE_ATTRIBUTES=")))
			attributes_parse(value, word + length, out);
		at += length + 1;
	}
	/* It takes precedence. */
	if (name[0])
		memcpy(out->name, name, sizeof(name));
}

void process_service_read(pid_t pid, struct process_service *out)
{
	struct buffer text = {0};

	*out = (struct process_service){0};
	if (!process_file_read(pid, "environ", ENVIRONMENT_MAX, &text))
		process_service_parse((const char *)text.data, text.size, out);
	buffer_free(&text);
}
