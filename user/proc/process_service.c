/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/process_service.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "proc/process.h"
#include "util/buffer.h"

#define ENVIRONMENT_MAX (64u * 1024)

#define CONTEXT_NAME    "OTEL_CTX"
#define CONTEXT_VERSION 2u
#define CONTEXT_MAX     (64u * 1024) /* bytes of its payload */
#define CONTEXT_TRIES   3u           /* to read it while the process does not change it */

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

/* --- process context -------------------------------------------------------------------------- */

/* A part of a message: bytes that are left. */
struct message_part {
	const uint8_t *at;
	size_t bytes;
};

static bool number_take(struct message_part *part, uint64_t *value)
{
	*value = 0;
	for (unsigned int shift = 0; part->bytes && shift < 64; shift += 7) {
		uint8_t byte = *part->at++;

		part->bytes--;
		*value |= (uint64_t)(byte & 127) << shift;
		if (!(byte & 128))
			return true;
	}
	return false;
}

static bool bytes_skip(struct message_part *part, uint64_t bytes)
{
	if (bytes > part->bytes)
		return false;
	part->at += bytes;
	part->bytes -= (size_t)bytes;
	return true;
}

/* Takes a field: its number, and its content if it has a length. false: the end, or damaged. */
static bool field_take(struct message_part *part, uint64_t *field, struct message_part *content)
{
	uint64_t key, number;

	*content = (struct message_part){0};
	if (!number_take(part, &key))
		return false;
	*field = key >> 3;
	switch (key & 7) {
	case 0:
		return number_take(part, &number);
	case 1:
		return bytes_skip(part, 8);
	case 2:
		if (!number_take(part, &number))
			return false;
		content->at = part->at;
		content->bytes = (size_t)number;
		return bytes_skip(part, number);
	case 5:
		return bytes_skip(part, 4);
	}
	return false;
}

/* The content of a field of that number, the last one there is. */
static struct message_part field_find(struct message_part part, uint64_t number)
{
	struct message_part found = {0}, content;
	uint64_t field;

	while (field_take(&part, &field, &content))
		if (field == number && content.at)
			found = content;
	return found;
}

/* A message KeyValue {1: key, 2: {1: text}}. */
static void key_value_take(struct message_part part, struct process_service *out)
{
	struct message_part key = field_find(part, 1), text = field_find(field_find(part, 2), 1);
	char *to = NULL;

	if (key.bytes == 12 && !memcmp(key.at, "service.name", 12))
		to = out->name;
	else if (key.bytes == 15 && !memcmp(key.at, "service.version", 15))
		to = out->version;
	if (!to || !text.bytes)
		return;
	if (text.bytes > PROCESS_SERVICE_TEXT - 1)
		text.bytes = PROCESS_SERVICE_TEXT - 1;
	memset(to, 0, PROCESS_SERVICE_TEXT);
	memcpy(to, text.at, strnlen((const char *)text.at, text.bytes));
}

void process_service_decode(const uint8_t *payload, size_t bytes, struct process_service *out)
{
	struct message_part whole = {payload, bytes}, first, second;
	uint64_t field;

	/* A Resource has them as its field 1; the message around it has that as its field 1. */
	while (field_take(&whole, &field, &first)) {
		if (field != 1 || !first.at)
			continue;
		key_value_take(first, out);
		while (field_take(&first, &field, &second))
			if (field == 1 && second.at)
				key_value_take(second, out);
	}
}

/* Its header: signature, version, bytes of the payload, time of publication, address. */
struct context_header {
	char signature[8];
	uint32_t version, bytes;
	uint64_t time_ns, payload;
};

/* 0; -EAGAIN: the process changes it meanwhile; -errno: there is none that is known. */
static int context_try(struct space *space, uint64_t address, struct process_service *out)
{
	struct context_header header, after;
	uint8_t *payload;
	int err = space_read(space, address, &header, sizeof(header));

	if (err)
		return err;
	if (memcmp(header.signature, CONTEXT_NAME, sizeof(header.signature)) ||
	    header.version != CONTEXT_VERSION || header.bytes > CONTEXT_MAX)
		return -EBADMSG;
	if (!header.time_ns)
		return -EAGAIN;
	payload = malloc(header.bytes + 1);
	if (!payload)
		return -ENOMEM;
	err = space_read(space, header.payload, payload, header.bytes)
		      ?: space_read(space, address, &after, sizeof(after));
	if (!err)
		err = memcmp(&header, &after, sizeof(header)) ? -EAGAIN : 0;
	if (!err)
		process_service_decode(payload, header.bytes, out);
	free(payload);
	return err;
}

static void context_read(pid_t pid, struct space *space, struct process_service *out)
{
	struct process_maps maps;

	if (process_maps_read(pid, &maps))
		return;
	for (size_t i = 0; i < maps.count; i++) {
		const char *path = maps.entries[i].path;

		if (strncmp(path, "[anon:" CONTEXT_NAME "]", 6 + sizeof(CONTEXT_NAME)) &&
		    strncmp(path, "[anon_shmem:" CONTEXT_NAME "]", 12 + sizeof(CONTEXT_NAME)) &&
		    strncmp(path, "/memfd:" CONTEXT_NAME, 6 + sizeof(CONTEXT_NAME)))
			continue;
		for (unsigned int turn = 0; turn < CONTEXT_TRIES; turn++)
			if (context_try(space, maps.entries[i].start, out) != -EAGAIN)
				break;
		break; /* there is one in a process */
	}
	process_maps_free(&maps);
}

void process_service_read(pid_t pid, struct space *space, struct process_service *out)
{
	struct buffer text = {0};

	*out = (struct process_service){0};
	if (!process_file_read(pid, "environ", ENVIRONMENT_MAX, &text))
		process_service_parse((const char *)text.data, text.size, out);
	buffer_free(&text);
	if (space)
		context_read(pid, space, out);
}
