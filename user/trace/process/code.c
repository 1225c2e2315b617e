/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpython/lines.h"
#include "runtime/cpython/offsets.h"
#include "trace/process/process_tables.h"
#include "util/array.h"
#include "util/utf8.h"

/*
 * Names of native frames. A stack refers to an address; the session describes each address once,
 * later.
 */

/* Index of the slot of a native address, allocated at first use. */
static int state_symbol_index(struct process_state *process, uint64_t address, uint32_t *symbol)
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
	out->native = SNAPSHOT_NATIVE;
	err = strings_intern(strings, function, frame->function_bytes, &out->function);
	return err ?: strings_intern(strings, filename, frame->filename_bytes, &out->filename);
}

#define BUILD_ID_DIGITS_MAX 128u
/* Of a process, each compared with every new address's; frames of others: SNAPSHOT_NATIVE. */
#define BINARIES_MAX 4096u

/* What native is of frames in that binary, which is added if new. 0, -ENOMEM, -EDQUOT. */
static int binary_find(struct process_state *process, const struct snapshot_binary *binary,
		       uint16_t *native)
{
	size_t at = 0;

	while (at < process->binary_count &&
	       memcmp(&process->binaries[at], binary, sizeof(*binary)) != 0)
		at++;
	if (at == BINARIES_MAX)
		return 0;
	if (at == process->binary_count) {
		int err = ARRAY_RESERVE(process->account, process, binaries, binary_count,
					binary_capacity, 1);

		if (err)
			return err;
		process->binaries[process->binary_count++] = *binary;
	}
	*native = (uint16_t)(SNAPSHOT_NATIVE + 1 + at);
	return 0;
}

/* Decodes the binary at the end of a record; path: of the mapped file. 0, -EBADMSG, -ENOMEM. */
static int binary_take(struct process_state *process, const struct event_symbol *event, size_t at,
		       uint32_t path, uint16_t *native)
{
	size_t capacity = event->header.size - sizeof(*event) - at;
	const struct event_symbol_binary *from = (const void *)(event->data + at);
	struct snapshot_binary binary = {.path = path};

	if (capacity < sizeof(*from) || from->build_id_bytes > BUILD_ID_DIGITS_MAX ||
	    from->build_id_bytes > capacity - sizeof(*from) || from->start >= from->limit)
		return -EBADMSG;
	for (uint32_t i = 0; i < from->build_id_bytes; i++)
		if (!isxdigit(from->data[i]))
			return -EBADMSG;
	binary.start = from->start;
	binary.limit = from->limit;
	binary.offset = from->offset;
	return strings_intern(process->strings, (const char *)from->data, from->build_id_bytes,
			      &binary.build_id)
		       ?: binary_find(process, &binary, native);
}

/* "[libc.so.6+0x1234]" stands for a function whose name is unknown. */
static bool is_name(const struct strings *strings, const struct trace_frame *frame)
{
	return strings_get(strings, frame->function)[0] != '[';
}

int state_symbol(struct process_state *process, const struct event_symbol *event)
{
	struct trace_frame extra = {.filename = process->unknown};
	uint16_t native = SNAPSHOT_NATIVE;
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
	if (!err && event->flags & EVENT_SYMBOL_BINARY)
		err = binary_take(process, event, at, extra.filename, &native);
	if (err)
		return err;
	for (uint32_t i = 0; i < event->count; i++)
		process->symbol_frames[process->symbol_frame_count + i].native = native;
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
	struct trace_frame frame = {.filename = process->unknown,
				    .function = process->unknown,
				    .native = SNAPSHOT_NATIVE};
	char text[32];
	int bytes = snprintf(text, sizeof(text), "0x%" PRIx64, address);

	/* Without memory the name stays unknown. */
	strings_intern(process->strings, text, (size_t)bytes, &frame.function);
	return frame;
}

/* Appends the frames of a symbol, at most capacity of them; returns how many it has. */
static uint32_t state_symbol_frames(struct process_state *process, uint32_t index,
				    uint32_t capacity, struct traceback_frames *out)
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

/*
 * Code objects. Parts that are missing from a record keep their known value. Pieces of a line table
 * are accepted in order from its start; a piece after a gap is dropped, because the code object is
 * sent again if one of its records was lost. So memory grows with the bytes received, not with the
 * announced size.
 */

/* --- stack ------------------------------------------------------------------------------------ */

/*
 * Stacks. Python frames are interned by {code object, instruction}, native ones by address. So a
 * stack costs four bytes per frame, and each line is looked up once.
 */

static int stack_index(struct process_state *process, uint64_t stack_id, uint32_t *stack)
{
	if (!stack_id) {
		*stack = STACK_EMPTY;
		return 0;
	}
	*stack = id_map_find(&process->stack_ids, stack_id);
	if (*stack != ID_MAP_NONE)
		return 0;
	if (process->stack_count > BLOCK_STACK_MAX)
		return -EDQUOT;
	int err = ARRAY_RESERVE(process->account, process, stacks, stack_count, stack_capacity, 1)
			  ?: id_map_put(&process->stack_ids, stack_id,
					(uint32_t)process->stack_count);
	if (err)
		return err;
	*stack = (uint32_t)process->stack_count++;
	process->stacks[*stack] = (struct stack_entry){.total = 1};
	return 0;
}

uint32_t state_stack_index(struct process_state *process, uint64_t stack_id)
{
	uint32_t stack;

	if (!stack_index(process, stack_id, &stack))
		return stack;
	process->info.counters.stacks_dropped++;
	return STACK_NO_MEMORY;
}

/* Index of the slot of a code id, allocated at first use. 0, -ENOMEM, -EDQUOT. */
static int state_code_index(struct process_state *process, uint64_t code_id, uint32_t *code)
{
	*code = code_id ? id_map_find(&process->code_ids, code_id) : 0;
	if (*code != ID_MAP_NONE)
		return 0;
	int err = ARRAY_RESERVE(process->account, process, codes, code_count, code_capacity, 1)
			  ?: id_map_put(&process->code_ids, code_id, (uint32_t)process->code_count);
	if (err)
		return err;
	*code = (uint32_t)process->code_count++;
	process->codes[*code] = (struct code_entry){
		.filename = process->unknown, .function = process->unknown, .version = 1};
	return 0;
}

static int frame_index(struct process_state *process, const struct event_frame *event,
		       uint32_t *frame)
{
	uint32_t code;
	int err;

	if (event->kind == EVENT_FRAME_NATIVE) {
		err = state_symbol_index(process, event->code_id, frame);
		*frame |= STACK_NATIVE;
		return err;
	}
	err = state_code_index(process, event->code_id, &code);
	if (err)
		return err;
	uint64_t key = (uint64_t)code << 32 | (uint32_t)event->lasti;
	*frame = id_map_find(&process->frame_ids, key);
	if (*frame != ID_MAP_NONE)
		return 0;
	err = ARRAY_RESERVE(process->account, process, frames, frame_count, frame_capacity, 1)
		      ?: id_map_put(&process->frame_ids, key, (uint32_t)process->frame_count);
	if (err)
		return err;
	*frame = (uint32_t)process->frame_count++;
	process->frames[*frame] = (struct frame_entry){.code = code, .lasti = event->lasti};
	return 0;
}

int state_stack(struct process_state *process, const struct event_stack *event)
{
	uint32_t index;

	if (event->nframe > EVENT_MAX_FRAMES || !event->stack_id ||
	    event->header.size < sizeof(*event) + event->nframe * sizeof(event->frames[0]))
		return -EBADMSG;
	int err = stack_index(process, event->stack_id, &index)
			  ?: ARRAY_RESERVE(process->account, process, stack_frames,
					   stack_frame_count, stack_frame_capacity, event->nframe);
	if (err)
		return err;
	struct stack_entry *stack = &process->stacks[index];
	if (stack->known)
		return 0;
	for (uint32_t i = 0; i < event->nframe; i++) {
		err = frame_index(process, &event->frames[i],
				  &process->stack_frames[process->stack_frame_count + i]);
		if (err)
			return err;
	}
	stack->first = process->stack_frame_count;
	stack->nframe = event->nframe;
	stack->total = event->total & EVENT_STACK_TOTAL;
	if (stack->total < event->nframe)
		stack->total = event->nframe;
	if (event->total & EVENT_STACK_CUT)
		stack->cut = 1 + (event->total >> EVENT_STACK_REASON & EVENT_STACK_REASONS);
	if (!stack->total)
		stack->total = 1; /* shown as one frame, <unknown> */
	process->stack_frame_count += event->nframe;
	process->info.counters.stacks_unknown -= stack->waiting;
	stack->waiting = 0;
	stack->known = 1;
	return 0;
}

/*
 * The line table, decoded once per version, so that lookups are cheap. 0; -ENOMEM, -EDQUOT;
 * -ENOTSUP: unknown Python version.
 */
static int lines_table(struct process_state *process, struct code_entry *code,
		       struct lines_table *out)
{
	const struct python_offsets *offsets =
		offsets_for(process->info.python_version >> 16, BUILD_RELEASE);
	struct lines_mark *marks;
	size_t count;
	int err;

	if (!offsets)
		return -ENOTSUP;
	*out = (struct lines_table){.format = offsets->lines,
				    .first_line = (int)code->first_line,
				    .data = code->lines,
				    .bytes = code->lines_bytes};
	if (code->marked != code->version) {
		err = lines_mark(out, &marks, &count);
		if (err)
			return err;
		err = account_resize(process->account, code->mark_count * sizeof(*marks),
				     count * sizeof(*marks));
		if (err) {
			free(marks);
			/* without marks every frame would scan the whole table */
			code->lines_known = 0;
			return err;
		}
		free(code->marks);
		code->marks = marks;
		code->mark_count = (uint32_t)count;
		code->marked = code->version;
	}
	out->marks = code->marks;
	out->mark_count = code->mark_count;
	return 0;
}

/* Resolves the frame from what is known now. */
static const struct frame_entry *frame_resolve(struct process_state *process, uint32_t index)
{
	struct frame_entry *frame = &process->frames[index];
	struct code_entry *code = &process->codes[frame->code];
	struct lines_table table;

	if (frame->version == code->version)
		return frame;
	frame->version = code->version;
	frame->frame =
		(struct trace_frame){.filename = process->unknown, .function = process->unknown};
	frame->unread = 1;
	if (!code->known)
		return frame;
	frame->frame.filename = code->filename;
	frame->frame.function = code->function;
	int lines_whole = code->lines_known && code->lines_have == code->lines_bytes &&
			  !lines_table(process, code, &table);
	if (lines_whole) {
		int line = lines_find(&table, frame->lasti);
		frame->frame.line = line > 0 ? (uint32_t)line : 0;
	}
	frame->unread = !code->filename_known || !lines_whole;
	return frame;
}

/* Appends the frames that an entry of a stack expands to; returns their number. */
static uint32_t frames_append(struct process_state *process, uint32_t index, uint32_t capacity,
			      struct traceback_frames *out)
{
	const struct frame_entry *frame;

	if (index & STACK_NATIVE)
		return state_symbol_frames(process, index & ~STACK_NATIVE, capacity, out);
	if (!capacity)
		return 1;
	frame = frame_resolve(process, index);
	out->unread += frame->unread;
	out->frames[out->count++] = frame->frame;
	return 1;
}

void state_traceback(struct process_state *process, uint32_t traceback,
		     struct traceback_frames *out)
{
	const struct stack_entry *stack = &process->stacks[traceback];

	out->count = out->unread = out->unnamed = out->slow = 0;
	out->total = stack->total - stack->nframe;
	for (uint32_t i = 0; i < stack->nframe; i++)
		out->total += frames_append(process, process->stack_frames[stack->first + i],
					    process->info.nframe - out->count, out);
	if (out->count)
		return;
	out->frames[out->count++] =
		(struct trace_frame){.filename = process->unknown, .function = process->unknown};
	out->total = stack->total;
}

const char *state_native_file(const struct process_state *process, uint32_t traceback)
{
	const struct stack_entry *stack = &process->stacks[traceback];
	const struct symbol_entry *symbol = NULL;
	uint32_t frame;

	/* Python's frames do not end a walk: it goes on behind them. */
	for (uint32_t i = 0; i < stack->nframe; i++) {
		frame = process->stack_frames[stack->first + i];
		if (frame & STACK_NATIVE)
			symbol = &process->symbols[frame & ~STACK_NATIVE];
		else if (!i)
			break;
	}
	if (!symbol)
		return "";
	return strings_get(process->strings, symbol->count ? symbol->file : process->unknown);
}

enum snapshot_unknown state_unknown(struct process_state *process, uint32_t traceback)
{
	const struct stack_entry *stack = &process->stacks[traceback];
	const struct symbol_entry *symbol;
	const struct code_entry *code;
	uint32_t first;

	if (traceback == STACK_NO_MEMORY)
		return UNKNOWN_NO_MEMORY;
	if (!stack->known)
		return UNKNOWN_NO_STACK;
	if (!stack->nframe)
		return UNKNOWN_NO_FRAME;
	first = process->stack_frames[stack->first];
	if (first & STACK_NATIVE) {
		symbol = &process->symbols[first & ~STACK_NATIVE];
		return symbol->count && process->symbol_frames[symbol->first].filename !=
						process->unknown
			       ? SNAPSHOT_UNKNOWNS
			       : UNKNOWN_NO_FILE;
	}
	code = &process->codes[process->frames[first].code];
	if (!code->known)
		return UNKNOWN_NO_CODE;
	return code->filename == process->unknown ? UNKNOWN_NO_NAME : SNAPSHOT_UNKNOWNS;
}

/* --- code ------------------------------------------------------------------------------------- */

static int code_text_valid(uint16_t kind, uint32_t bytes)
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

	return strings_intern(strings, utf8, utf8_from_python(utf8, data, kind, bytes), id);
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

	if (!event->code_id || !code_text_valid(event->filename_kind, event->filename_bytes) ||
	    !code_text_valid(event->qualname_kind, event->qualname_bytes) ||
	    event->first_line > INT32_MAX ||
	    (event->lines_bytes > TRACE_LINES_MAX && !(event->missing & EVENT_MISS_LINES)) ||
	    event->header.size < sizeof(*event) + event->filename_bytes + event->qualname_bytes)
		return -EBADMSG;
	int err = state_code_index(process, event->code_id, &index);
	return err ?: code_store(process->strings, &process->codes[index], event);
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
