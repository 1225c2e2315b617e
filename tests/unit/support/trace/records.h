/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds records into a trace, as BPF emits them. */
#ifndef TEST_RECORDS_H
#define TEST_RECORDS_H

#include <stdlib.h>
#include <string.h>

#include "trace/trace.h"

#define TGID 1000u

static inline struct event_header header_of(uint32_t type, size_t size)
{
	return (struct event_header){
		.type = type, .size = (uint32_t)size, .time_ns = 1, .tgid = TGID, .tid = TGID};
}

static inline int feed_process_of(struct trace *trace, uint32_t python_version, uint32_t tgid,
				  uint32_t parent, uint32_t mode)
{
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .python_version = python_version,
				     .nframe = 16,
				     .mode = mode,
				     .parent = parent,
				     .name = "python3"};

	event.header.tgid = event.header.tid = tgid;
	return trace_feed(trace, &event, sizeof(event));
}

static inline int feed_process(struct trace *trace, uint32_t python_version)
{
	return feed_process_of(trace, python_version, TGID, 0, 1);
}

static inline int feed_put(struct trace *trace, uint32_t type, uint32_t tid, uint64_t address,
			   uint64_t bytes, uint64_t stack_id)
{
	struct event_alloc event = {.header = header_of(type, sizeof(event)),
				    .address = address,
				    .bytes = bytes,
				    .stack_id = stack_id,
				    .api = EVENT_API_OBJ};

	event.header.tid = tid;
	return trace_feed(trace, &event, sizeof(event));
}

static inline int feed_alloc(struct trace *trace, uint64_t address, uint64_t bytes,
			     uint64_t stack_id)
{
	return feed_put(trace, EVENT_ALLOC, TGID, address, bytes, stack_id);
}

static inline int feed_take(struct trace *trace, uint32_t type, uint32_t tid, uint64_t address)
{
	struct event_free event = {.header = header_of(type, sizeof(event)), .address = address};

	event.header.tid = tid;
	return trace_feed(trace, &event, sizeof(event));
}

static inline int feed_free(struct trace *trace, uint64_t address)
{
	return feed_take(trace, EVENT_FREE, TGID, address);
}

static inline int feed_process_event(struct trace *trace, uint32_t type)
{
	struct event_process event = {.header = header_of(type, sizeof(event))};

	return trace_feed(trace, &event, sizeof(event));
}

static inline int feed_mark(struct trace *trace, uint32_t type)
{
	struct event_mark event = {.header = header_of(type, sizeof(event))};

	return trace_feed(trace, &event, sizeof(event));
}

/* A stack of nframe frames at lasti 0 of the code objects code_id, code_id + 1, … */
static inline int feed_stack(struct trace *trace, uint64_t stack_id, uint64_t code_id,
			     uint32_t nframe)
{
	size_t size = sizeof(struct event_stack) + nframe * sizeof(struct event_frame);
	struct event_stack *event = calloc(1, size);
	int err;

	event->header = header_of(EVENT_STACK, size);
	event->stack_id = stack_id;
	event->nframe = nframe;
	event->total = nframe;
	for (uint32_t i = 0; i < nframe; i++)
		event->frames[i].code_id = code_id + i;
	err = trace_feed(trace, event, size);
	free(event);
	return err;
}

/*
 * A stack of native frames at these addresses, most recent first; those below 4096 are Python code
 * objects. cut: EVENT_STACK_CUT or 0.
 */
static inline int feed_native_stack(struct trace *trace, uint64_t stack_id,
				    const uint64_t *addresses, uint32_t nframe, uint32_t cut)
{
	size_t size = sizeof(struct event_stack) + nframe * sizeof(struct event_frame);
	struct event_stack *event = calloc(1, size);
	int err;

	event->header = header_of(EVENT_STACK, size);
	event->stack_id = stack_id;
	event->nframe = nframe;
	event->total = nframe | cut;
	for (uint32_t i = 0; i < nframe; i++)
		event->frames[i] = (struct event_frame){
			.code_id = addresses[i],
			.kind = addresses[i] < 4096 ? EVENT_FRAME_PYTHON : EVENT_FRAME_NATIVE};
	err = trace_feed(trace, event, size);
	free(event);
	return err;
}

/* Appends a frame to a record of `size` bytes; returns its size. */
static inline size_t symbol_frame_put(unsigned char *data, size_t size, uint32_t line,
				      const char *function, const char *filename)
{
	struct event_symbol_frame *frame = (void *)(data + size);

	frame->line = line;
	frame->function_bytes = (uint16_t)strlen(function);
	frame->filename_bytes = (uint16_t)strlen(filename);
	memcpy(frame->data, function, frame->function_bytes);
	memcpy(frame->data + frame->function_bytes, filename, frame->filename_bytes);
	return size + (sizeof(*frame) + frame->function_bytes + frame->filename_bytes + 7) / 8 * 8;
}

/* Names the address: a function of a binary, whose build ID has as many digits as it says. */
static inline int feed_symbol_binary(struct trace *trace, uint64_t address, const char *function,
				     const char *filename, const struct event_symbol_binary *binary,
				     const char *build_id)
{
	unsigned char data[4096] = {0};
	struct event_symbol *event = (void *)data;
	size_t size = symbol_frame_put(data, sizeof(*event), 0, function, filename);

	memcpy(data + size, binary, sizeof(*binary));
	memcpy(data + size + sizeof(*binary), build_id, strlen(build_id));
	size += (sizeof(*binary) + strlen(build_id) + 7) / 8 * 8;
	event->header = header_of(EVENT_SYMBOL, size);
	event->address = address;
	event->count = 1;
	event->flags = EVENT_SYMBOL_BINARY;
	return trace_feed(trace, event, size);
}

/* mapped: the mapped file, NULL: filename is it. */
static inline int feed_symbol_of(struct trace *trace, uint64_t address,
				 const char *const *functions, uint32_t count, const char *filename,
				 const char *mapped, uint32_t flags)
{
	unsigned char data[4096] = {0};
	struct event_symbol *event = (void *)data;
	size_t size = sizeof(*event);

	for (uint32_t i = 0; i < count; i++)
		size = symbol_frame_put(data, size, i + 1, functions[i], filename);
	if (mapped)
		size = symbol_frame_put(data, size, 0, "", mapped);
	event->header = header_of(EVENT_SYMBOL, size);
	event->address = address;
	event->count = count;
	event->flags = flags | (mapped ? EVENT_SYMBOL_FILE : 0);
	return trace_feed(trace, event, size);
}

static inline int feed_symbol_flags(struct trace *trace, uint64_t address,
				    const char *const *functions, uint32_t count,
				    const char *filename, uint32_t flags)
{
	return feed_symbol_of(trace, address, functions, count, filename, NULL, flags);
}

/* Names the address: count functions FUNCTION, FUNCTION, ... at lines 1, 2, ... of FILENAME. */
static inline int feed_symbol(struct trace *trace, uint64_t address, const char *const *functions,
			      uint32_t count, const char *filename)
{
	return feed_symbol_flags(trace, address, functions, count, filename, 0);
}

struct text {
	const void *data;
	uint32_t bytes;
	uint16_t kind;
};

static inline int feed_code_text(struct trace *trace, uint64_t code_id, struct text filename,
				 struct text qualname, uint32_t first_line, uint32_t missing,
				 uint32_t lines_bytes)
{
	size_t size = (sizeof(struct event_code) + filename.bytes + qualname.bytes + 7) / 8 * 8;
	struct event_code *event = calloc(1, size);
	int err;

	event->header = header_of(EVENT_CODE, size);
	event->code_id = code_id;
	event->address = code_id * 0x1000;
	event->first_line = first_line;
	event->missing = missing;
	event->lines_bytes = lines_bytes;
	event->filename_kind = filename.kind;
	event->filename_bytes = filename.bytes;
	event->qualname_kind = qualname.kind;
	event->qualname_bytes = qualname.bytes;
	if (filename.bytes)
		memcpy(event->data, filename.data, filename.bytes);
	if (qualname.bytes)
		memcpy(event->data + filename.bytes, qualname.data, qualname.bytes);
	err = trace_feed(trace, event, size);
	free(event);
	return err;
}

static inline int feed_code(struct trace *trace, uint64_t code_id, const char *filename,
			    const char *qualname, uint32_t first_line, uint32_t missing,
			    uint32_t lines_bytes)
{
	struct text file = {filename, (uint32_t)strlen(filename), 1};
	struct text name = {qualname, (uint32_t)strlen(qualname), 1};

	return feed_code_text(trace, code_id, file, name, first_line, missing, lines_bytes);
}

static inline int feed_lines(struct trace *trace, uint64_t code_id, uint32_t offset,
			     const void *data, uint32_t bytes)
{
	size_t size = (sizeof(struct event_code_lines) + bytes + 7) / 8 * 8;
	struct event_code_lines *event = calloc(1, size);
	int err;

	event->header = header_of(EVENT_CODE_LINES, size);
	event->code_id = code_id;
	event->offset = offset;
	event->bytes = bytes;
	memcpy(event->data, data, bytes);
	err = trace_feed(trace, event, size);
	free(event);
	return err;
}

#endif
