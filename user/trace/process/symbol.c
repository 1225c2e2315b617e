/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of native frames. A stack refers to an address; the session describes each address once,
 * later.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "trace/process/process_tables.h"
#include "util/array.h"

int state_symbol_index(struct process_state *process, uint64_t address, uint32_t *symbol)
{
	int err;

	*symbol = id_map_find(&process->symbol_ids, address);
	if (*symbol != ID_MAP_NONE)
		return 0;
	err = ARRAY_RESERVE(process->account, process, symbols, symbol_count, symbol_capacity, 1);
	if (!err && process->symbol_count == STACK_NATIVE)
		err = -ENOMEM;
	if (!err)
		err = id_map_put(&process->symbol_ids, address, (uint32_t)process->symbol_count);
	if (err)
		return err;
	*symbol = (uint32_t)process->symbol_count++;
	process->symbols[*symbol] = (struct symbol_entry){.address = address};
	return 0;
}

static int text_valid(const char *text, size_t bytes)
{
	return bytes <= EVENT_MAX_TEXT && !memchr(text, 0, bytes);
}

/* Decodes one frame of a record at *at and advances *at. 0, -EBADMSG, -ENOMEM. */
static int frame_take(struct strings *strings, const struct event_symbol *event, size_t *at,
		      struct trace_frame *out)
{
	size_t capacity = event->header.size - sizeof(*event) - *at, bytes;
	const struct event_symbol_frame *frame = (const void *)(event->data + *at);
	const char *function, *filename;
	int err;

	if (capacity < sizeof(*frame))
		return -EBADMSG;
	bytes = sizeof(*frame) + frame->function_bytes + frame->filename_bytes;
	function = (const char *)frame->data;
	filename = function + frame->function_bytes;
	if (bytes > capacity || !text_valid(function, frame->function_bytes) ||
	    !text_valid(filename, frame->filename_bytes))
		return -EBADMSG;
	*at += (bytes + 7) & ~(size_t)7;
	out->line = frame->line;
	out->native = 1;
	err = strings_intern(strings, function, frame->function_bytes, &out->function);
	return err ?: strings_intern(strings, filename, frame->filename_bytes, &out->filename);
}

/* "[libc.so.6+0x1234]" stands for a function whose name is unknown. */
static int is_name(const struct strings *strings, const struct trace_frame *frame)
{
	return strings_get(strings, frame->function)[0] != '[';
}

int state_symbol(struct process_state *process, const struct event_symbol *event)
{
	struct trace_frame extra = {.filename = process->unknown};
	struct symbol_entry *symbol;
	size_t at = 0;
	uint32_t index;
	int err;

	if (event->count > EVENT_MAX_FRAMES)
		return -EBADMSG;
	err = state_symbol_index(process, event->address, &index)
		      ?: ARRAY_RESERVE(process->account, process, symbol_frames, symbol_frame_count,
				       symbol_frame_capacity, event->count);
	for (uint32_t i = 0; i < event->count && !err; i++) {
		struct trace_frame *frame =
			&process->symbol_frames[process->symbol_frame_count + i];

		frame->inlined = i + 1 < event->count;
		err = frame_take(process->strings, event, &at, frame);
	}
	if (!err && event->flags & EVENT_SYMBOL_FILE)
		err = frame_take(process->strings, event, &at, &extra);
	else if (!err && event->count)
		extra = process->symbol_frames[process->symbol_frame_count + event->count - 1];
	if (err)
		return err;
	symbol = &process->symbols[index];
	symbol->first = process->symbol_frame_count;
	symbol->count = event->count;
	symbol->file = extra.filename;
	symbol->slow = (event->flags & EVENT_SYMBOL_SLOW) != 0;
	symbol->known = !symbol->slow;
	symbol->named =
		symbol->count && is_name(process->strings, &process->symbol_frames[symbol->first]);
	process->symbol_frame_count += event->count;
	return 0;
}

static struct trace_frame unnamed_frame(struct process_state *process, uint64_t address)
{
	struct trace_frame frame = {
		.filename = process->unknown, .function = process->unknown, .native = 1};
	char text[32];
	int bytes = snprintf(text, sizeof(text), "0x%" PRIx64, address);

	/* Without memory the name stays unknown. */
	strings_intern(process->strings, text, (size_t)bytes, &frame.function);
	return frame;
}

uint32_t state_symbol_frames(struct process_state *process, uint32_t index, uint32_t capacity,
			     struct traceback_frames *out)
{
	const struct symbol_entry *symbol = &process->symbols[index];

	for (uint32_t i = 0; i < symbol->count && i < capacity; i++)
		out->frames[out->count++] = process->symbol_frames[symbol->first + i];
	out->unnamed += symbol->count && !symbol->named;
	out->slow += symbol->slow;
	if (symbol->count || !capacity)
		return symbol->count ? symbol->count : 1;
	out->frames[out->count++] = unnamed_frame(process, symbol->address);
	out->unnamed++;
	return 1;
}
