/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/process_service.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "proc/process.h"
#include "proc/process_context.pb-c.h"
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

static void resource_take(const ProcessContext__Resource *resource, struct process_service *out)
{
	for (size_t i = 0; i < resource->n_attributes; i++) {
		const ProcessContext__KeyValue *attribute = resource->attributes[i];
		const char *text = attribute->value ? attribute->value->string_value : "";
		char *to = NULL;

		if (!strcmp(attribute->key, "service.name"))
			to = out->name;
		else if (!strcmp(attribute->key, "service.version"))
			to = out->version;
		if (to && text[0])
			snprintf(to, PROCESS_SERVICE_TEXT, "%s", text);
	}
}

void process_service_decode(const uint8_t *payload, size_t bytes, struct process_service *out)
{
	ProcessContext__Context *context = process_context__context__unpack(NULL, bytes, payload);
	/* An earlier form: no key of an attribute is an attribute. */
	ProcessContext__Resource *alone =
		context ? NULL : process_context__resource__unpack(NULL, bytes, payload);

	if (context && context->resource)
		resource_take(context->resource, out);
	if (alone)
		resource_take(alone, out);
	process_context__context__free_unpacked(context, NULL);
	process_context__resource__free_unpacked(alone, NULL);
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
