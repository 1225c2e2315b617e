/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A code object may be freed and its address reused while it is read. Everything is first copied,
 * then the data that the id is computed from is read again, and records are made only if the id is
 * unchanged.
 */
#include "runtime/cpython/code.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "proc/memory.h"
#include "util/array.h"

#define WINDOW_WORDS    11
#define WINDOW_BYTES    (WINDOW_WORDS * 8)
#define CONTENT_WORDS   16
#define CONTENT_MAX     (1u << 30) /* limit of a text or table, bytes */
#define LINES_MAX       (1u << 20) /* limit of a line table, bytes */
#define UNICODE_KIND    7u
#define UNICODE_COMPACT (1u << 3) /* bit after the shift of the kind */
#define UNICODE_ASCII   (1u << 4)

struct code_text {
	uint16_t kind;
	uint32_t bytes;
	uint8_t data[EVENT_MAX_TEXT];
};

static uint64_t mix(uint64_t x)
{
	x *= 0xbf58476d1ce4e5b9ull;
	return x ^ x >> 32;
}

static uint64_t hash_word(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

/* Reads a pointer member of the code object. */
static int pointer_read(struct space *space, uint64_t address, uint64_t *out)
{
	return space_read(space, address, out, sizeof(*out));
}

/* Finds the text of a str object. 0, -EINVAL, -errno. */
static int text_find(struct space *space, const struct abi_offsets *offsets, uint64_t address,
		     uint64_t *data, uint64_t *bytes, uint16_t *kind)
{
	uint64_t length;
	uint32_t state;

	int err = space_read(space, address + offsets->unicode_state, &state, sizeof(state))
			  ?: space_read(space, address + offsets->unicode_length, &length,
					sizeof(length));
	if (err)
		return err;
	state >>= offsets->unicode_kind_shift;
	*kind = state & UNICODE_KIND;
	if (!(state & UNICODE_COMPACT) || (*kind != 1 && *kind != 2 && *kind != 4) ||
	    length > CONTENT_MAX)
		return -EINVAL;
	*data = address +
		(state & UNICODE_ASCII ? offsets->unicode_ascii : offsets->unicode_compact);
	*bytes = length * *kind;
	return 0;
}

/* Mixes the last bytes at data into hash. */
static int content_mix(struct space *space, uint64_t data, uint64_t bytes, uint64_t *hash)
{
	uint64_t words[CONTENT_WORDS] = {0}, content = mix(bytes);
	size_t size = bytes < sizeof(words) ? bytes : sizeof(words);
	int err = space_read(space, data + bytes - size, words, size);

	for (size_t i = 0; i < CONTENT_WORDS && 8 * i < size; i++)
		content = hash_word(content, words[i]);
	*hash = hash_word(*hash, content ? content : 1);
	return err;
}

/* Mixes into hash the part of a code object that the pointer at pointer_at refers to. */
typedef int part_mix(struct space *space, const struct abi_offsets *offsets, uint64_t pointer_at,
		     uint64_t *hash);

static int text_mix(struct space *space, const struct abi_offsets *offsets, uint64_t pointer_at,
		    uint64_t *hash)
{
	uint64_t string = 0, data = 0, bytes = 0;
	uint16_t kind;
	int err = pointer_read(space, pointer_at, &string);

	return err
		?: text_find(space, offsets, string, &data, &bytes, &kind)
		?: content_mix(space, data, bytes, hash);
}

static int lines_mix(struct space *space, const struct abi_offsets *offsets, uint64_t pointer_at,
		     uint64_t *hash)
{
	uint64_t lines = 0, bytes = 0;
	int err = pointer_read(space, pointer_at, &lines);

	err = err ?: space_read(space, lines + offsets->bytes_size, &bytes, sizeof(bytes));
	if (!err && bytes > CONTENT_MAX)
		err = -EINVAL;
	return err ?: content_mix(space, lines + offsets->bytes_data, bytes, hash);
}

/*
 * Mixes in texts and line table, except those in missing (EVENT_MISS_*), which could not be read
 * when the id was made.
 */
static int contents_mix(struct space *space, const struct abi_offsets *offsets, uint64_t address,
			uint32_t missing, uint64_t *hash)
{
	const struct {
		part_mix *mix;
		uint32_t offset, part;
	} parts[] = {
		{text_mix, offsets->code_filename, EVENT_MISS_FILENAME},
		{text_mix, offsets->code_qualname, EVENT_MISS_QUALNAME},
		{lines_mix, offsets->code_lines, EVENT_MISS_LINES},
	};
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(parts) && !err; i++) {
		if (missing & parts[i].part)
			*hash = hash_word(*hash, 0);
		else
			err = parts[i].mix(space, offsets, address + parts[i].offset, hash);
	}
	*hash = (*hash & ~(uint64_t)EVENT_MISS_ALL) | missing;
	return err;
}

int code_id(struct space *space, const struct abi_target *target, uint64_t address,
	    uint32_t missing, uint64_t *id)
{
	const struct abi_offsets *offsets = &target->offsets;
	uint64_t window[WINDOW_WORDS], hash = mix(target->space_id ^ address);
	int err = space_read(space, address + offsets->code_lines + 8 - WINDOW_BYTES, window,
			     sizeof(window));

	for (int i = 0; i < WINDOW_WORDS && !err; i++)
		hash = hash_word(hash, window[i]);
	if (!err && !offsets->code_versioned)
		err = contents_mix(space, offsets, address, missing, &hash);
	*id = hash ? hash : 1; /* 0 names no code object */
	return err;
}

/*
 * 0: the text at address was read; a negative errno other than -ESRCH and -EPERM means "missing".
 */
static int text_read(struct space *space, const struct abi_offsets *offsets, uint64_t address,
		     struct code_text *out)
{
	uint64_t data, bytes;
	int err = text_find(space, offsets, address, &data, &bytes, &out->kind);

	if (err)
		return err;
	out->bytes = bytes > EVENT_MAX_TEXT ? EVENT_MAX_TEXT : (uint32_t)bytes;
	return space_read(space, data, out->data, out->bytes);
}

/*
 * Reads the line table; the caller frees *out. 0; -EFBIG, -EFAULT: it could not be read; -ENOMEM.
 */
static int lines_read(struct space *space, const struct abi_offsets *offsets, uint64_t address,
		      uint8_t **out, uint32_t *size)
{
	int64_t bytes;

	int err = space_read(space, address + offsets->bytes_size, &bytes, sizeof(bytes));
	if (err)
		return err;
	if (bytes < 0 || bytes > LINES_MAX)
		return -EFBIG;
	uint8_t *data = malloc((size_t)bytes + 1);
	if (!data)
		return -ENOMEM;
	err = space_read(space, address + offsets->bytes_data, data, (size_t)bytes);
	if (err) {
		free(data);
		return err;
	}
	*out = data;
	*size = (uint32_t)bytes;
	return 0;
}

static int pad_append(struct buffer *out, size_t size)
{
	static const uint8_t zero[8];

	return buffer_append(out, zero, -size & 7);
}

static int code_append(struct buffer *out, struct event_code *event,
		       const struct code_text *filename, const struct code_text *qualname)
{
	size_t size = sizeof(*event) + filename->bytes + qualname->bytes;

	event->filename_kind = filename->kind;
	event->qualname_kind = qualname->kind;
	event->filename_bytes = filename->bytes;
	event->qualname_bytes = qualname->bytes;
	event->header.type = EVENT_CODE;
	event->header.size = (uint32_t)(size + (-size & 7));
	return buffer_append(out, event, sizeof(*event))
		?: buffer_append(out, filename->data, filename->bytes)
		?: buffer_append(out, qualname->data, qualname->bytes)
		?: pad_append(out, size);
}

static int lines_append(struct buffer *out, const struct event_code *code, const uint8_t *lines)
{
	struct event_code_lines event = {.header = code->header, .code_id = code->code_id};
	int err = 0;

	event.header.type = EVENT_CODE_LINES;
	while (!err && event.offset < code->lines_bytes) {
		event.bytes = code->lines_bytes - event.offset;
		if (event.bytes > EVENT_MAX_LINES)
			event.bytes = EVENT_MAX_LINES;
		size_t size = sizeof(event) + event.bytes;
		event.header.size = (uint32_t)(size + (-size & 7));
		err = buffer_append(out, &event, sizeof(event))
		      ?: buffer_append(out, lines + event.offset, event.bytes)
		      ?: pad_append(out, size);
		event.offset += event.bytes;
	}
	return err;
}

static int id_check(struct space *space, const struct abi_target *target, uint64_t address,
		    uint64_t expected_id)
{
	uint64_t id;
	int err = code_id(space, target, address, expected_id & EVENT_MISS_ALL, &id);

	if (err == -EINVAL)
		return -ESTALE;
	return err ? err : id == expected_id ? 0 : -ESTALE;
}

/* A part that cannot be read is marked; a process that is gone, or no memory, ends the reading. */
static int part_missing(int err, struct event_code *event, uint32_t part)
{
	if (err == -ESRCH || err == -EPERM || err == -ENOMEM)
		return err;
	if (err)
		event->missing |= part;
	return 0;
}

int code_read(struct space *space, const struct abi_target *target, uint64_t address,
	      uint64_t expected_id, const struct event_header *header, struct buffer *out)
{
	const struct abi_offsets *offsets = &target->offsets;
	struct event_code event = {.header = *header, .code_id = expected_id, .address = address};
	struct code_text filename = {.kind = 1}, qualname = {.kind = 1};
	uint64_t filename_at, qualname_at, lines_at;
	size_t size_before = out->size;
	uint8_t *lines = NULL;
	int err;

	err = id_check(space, target, address, expected_id)
	      ?: space_read(space, address + offsets->code_first_line, &event.first_line,
			    sizeof(event.first_line))
	      ?: pointer_read(space, address + offsets->code_filename, &filename_at)
	      ?: pointer_read(space, address + offsets->code_qualname, &qualname_at)
	      ?: pointer_read(space, address + offsets->code_lines, &lines_at);
	if (err)
		return err;

	err = part_missing(text_read(space, offsets, filename_at, &filename), &event,
			   EVENT_MISS_FILENAME)
	      ?: part_missing(text_read(space, offsets, qualname_at, &qualname), &event,
			      EVENT_MISS_QUALNAME)
	      ?: part_missing(lines_read(space, offsets, lines_at, &lines, &event.lines_bytes),
			      &event, EVENT_MISS_LINES)
	      ?: id_check(space, target, address, expected_id);
	if (err)
		goto out;
	if (event.missing & EVENT_MISS_FILENAME)
		filename = (struct code_text){.kind = 1};
	if (event.missing & EVENT_MISS_QUALNAME)
		qualname = (struct code_text){.kind = 1};
	err = code_append(out, &event, &filename, &qualname);
	if (!err && lines)
		err = lines_append(out, &event, lines);
	if (err)
		out->size = size_before;
out:
	free(lines);
	return err;
}
