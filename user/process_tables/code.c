/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code objects. Parts that are missing from a record keep their known value. Pieces of a line table
 * are accepted in order from its start; a piece after a gap is dropped, because the code object is
 * sent again if one of its records was lost. So memory grows with the bytes received, not with the
 * announced size.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "process_tables/process_tables.h"
#include "text/utf8.h"

int state_code_index(struct process_state *process, uint64_t code_id, uint32_t *code)
{
	*code = code_id ? id_map_find(&process->code_ids, code_id) : 0;
	if (*code != ID_MAP_NONE)
		return 0;
	int err = array_reserve_in(process->account, &process->codes, &process->code_capacity,
				   process->code_count, 1, sizeof(*process->codes));
	if (!err)
		err = id_map_put(&process->code_ids, code_id, (uint32_t)process->code_count);
	if (err)
		return err;
	*code = (uint32_t)process->code_count++;
	process->codes[*code] = (struct code_entry){
		.filename = process->unknown, .function = process->unknown, .version = 1};
	return 0;
}

static int text_valid(uint16_t kind, uint32_t bytes)
{
	if (!bytes)
		return 1;
	return (kind == 1 || kind == 2 || kind == 4) && bytes <= TRACE_TEXT_MAX &&
	       bytes % kind == 0;
}

static int text_intern(struct strings *strings, const uint8_t *data, uint16_t kind, uint32_t bytes,
		       uint32_t *id)
{
	char utf8[UTF8_ENCODED(TRACE_TEXT_MAX)];

	return strings_intern(strings, utf8, utf8_encode(utf8, data, kind, bytes), id);
}

static int code_store(struct strings *strings, struct code_entry *code,
		      const struct event_code *event)
{
	uint32_t filename = code->filename, function = code->function;
	int err = 0;

	if (!(event->missing & EVENT_MISS_FILENAME))
		err = text_intern(strings, event->data, event->filename_kind, event->filename_bytes,
				  &filename);
	if (!err && !(event->missing & EVENT_MISS_QUALNAME))
		err = text_intern(strings, event->data + event->filename_bytes,
				  event->qualname_kind, event->qualname_bytes, &function);
	if (err)
		return err;
	if (!(event->missing & EVENT_MISS_FILENAME))
		code->filename_known = 1;
	if (!(event->missing & EVENT_MISS_LINES)) {
		if (code->lines_have > event->lines_bytes)
			code->lines_have = 0;
		code->lines_bytes = event->lines_bytes;
		code->lines_known = 1;
	}
	code->filename = filename;
	code->function = function;
	code->first_line = event->first_line;
	code->known = 1;
	code->version++;
	return 0;
}

int state_code(struct process_state *process, const struct event_code *event)
{
	uint32_t index;

	if (!event->code_id || !text_valid(event->filename_kind, event->filename_bytes) ||
	    !text_valid(event->qualname_kind, event->qualname_bytes) ||
	    event->first_line > INT32_MAX ||
	    (event->lines_bytes > TRACE_LINES_MAX && !(event->missing & EVENT_MISS_LINES)) ||
	    event->header.size < sizeof(*event) + event->filename_bytes + event->qualname_bytes)
		return -EBADMSG;
	int err = state_code_index(process, event->code_id, &index);
	return err ? err : code_store(process->strings, &process->codes[index], event);
}

/* Doubles the capacity, so that many small pieces cost no more than a few large ones. */
static int lines_reserve(struct process_state *process, struct code_entry *code, uint32_t bytes)
{
	uint32_t capacity = code->lines_capacity ? code->lines_capacity : 64;

	if (bytes <= code->lines_capacity)
		return 0;
	while (capacity < bytes)
		capacity *= 2;
	int err = account_resize(process->account, code->lines_capacity, capacity);
	if (err)
		return err;
	uint8_t *lines = realloc(code->lines, capacity);
	if (!lines) {
		account_uncharge(process->account, capacity - code->lines_capacity);
		return -ENOMEM;
	}
	code->lines = lines;
	code->lines_capacity = capacity;
	return 0;
}

int state_code_lines(struct process_state *process, const struct event_code_lines *event)
{
	uint32_t index;

	if (!event->code_id || event->offset > TRACE_LINES_MAX ||
	    event->bytes > TRACE_LINES_MAX - event->offset ||
	    event->header.size < sizeof(*event) + event->bytes)
		return -EBADMSG;
	uint32_t end = event->offset + event->bytes;
	int err = state_code_index(process, event->code_id, &index);
	if (err)
		return err;
	struct code_entry *code = &process->codes[index];
	if (code->lines_known && end > code->lines_bytes)
		return -EBADMSG;
	if (event->offset > code->lines_have)
		return 0;
	err = lines_reserve(process, code, end);
	if (err)
		return err;
	if (end > code->lines_have)
		code->lines_have = end;
	if (event->bytes)
		memcpy(code->lines + event->offset, event->data, event->bytes);
	code->version++;
	return 0;
}
