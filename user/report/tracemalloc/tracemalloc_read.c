/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the pickle machine that tracemalloc's files need: a stack, marks on it, and a memo
 * whose entries are numbered in order. instruction_run() has the instructions, tracemalloc_values.c
 * the values that are allowed.
 */
#include "report/tracemalloc/tracemalloc.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "report/tracemalloc/pickle.h"
#include "report/tracemalloc/tracemalloc_machine.h"
#include "util/error.h"
#include "util/utf8.h"

#define TRACES_MANY 65536u     /* at least this many traces: their memory is reserved at once */
#define TEXT_MAX    (1u << 20) /* bytes of a name */
#define CLASS_LINE  160u       /* bytes of a module's or class's name */

/* Takes n bytes of the file; their address is valid until the next call. */
static int bytes_take(struct pickle_machine *machine, size_t n, const unsigned char **out)
{
	struct infile *file = machine->file;
	int err = file->end - file->at < n ? infile_fill(file, n) : 0;

	if (err)
		return err;
	if (file->end - file->at < n)
		return machine_corrupt(
			"the file ends here, in the middle of an instruction: it is truncated");
	*out = file->data + file->at;
	file->at += n;
	return 0;
}

/* Takes a little-endian number of n bytes, at most eight. */
static int number_take(struct pickle_machine *machine, size_t n, uint64_t *out)
{
	const unsigned char *bytes;
	int err = bytes_take(machine, n, &bytes);

	*out = 0;
	for (size_t i = 0; !err && i < n; i++)
		*out |= (uint64_t)bytes[i] << 8 * i;
	return err;
}

/* Pops the last n values; *out is valid until the next push. */
static int pop(struct pickle_machine *machine, size_t n, const uint64_t **out)
{
	if (machine_depth(machine) < n)
		return machine_corrupt("the stack holds too little");
	machine->depth -= n;
	*out = machine->stack + machine->depth;
	return 0;
}

/* Pops the last mark and the values above it. */
static int mark_pop(struct pickle_machine *machine, const uint64_t **out, size_t *count)
{
	if (!machine->mark_count)
		return machine_corrupt("no mark is set");
	*count = machine_depth(machine);
	machine->mark_count--;
	return pop(machine, *count, out);
}

static int push_number(struct pickle_machine *machine, size_t n)
{
	uint64_t number;
	int err = number_take(machine, n, &number);

	if (!err && n == 4 && number > INT32_MAX)
		return machine_corrupt("a negative number");
	return err ?: machine_push(machine, value_make(VALUE_NUMBER, number));
}

static int push_long(struct pickle_machine *machine)
{
	uint64_t n, number;
	int err = number_take(machine, 1, &n);

	if (!err && n > sizeof(number))
		return machine_corrupt("a number of more than 64 bits");
	err = err ?: number_take(machine, n, &number);
	if (!err && n && number >> (8 * n - 1))
		return machine_corrupt("a negative number");
	if (!err && number >> VALUE_BITS)
		return machine_corrupt("a number of more than 60 bits");
	return err ?: machine_push(machine, value_make(VALUE_NUMBER, number));
}

static int push_text(struct pickle_machine *machine, size_t length_bytes)
{
	const unsigned char *text;
	uint64_t bytes;
	uint32_t id;
	int err = number_take(machine, length_bytes, &bytes);

	if (!err && bytes > TEXT_MAX)
		return error_set(-EBADMSG, "a name of %llu bytes", (unsigned long long)bytes);
	err = err ?: bytes_take(machine, bytes, &text);
	if (!err && !utf8_valid((const char *)text, bytes))
		return machine_corrupt("a name that is not UTF-8, or holds a NUL");
	err = err
		      ?: strings_intern(machine->values.snapshot->strings, (const char *)text,
					bytes, &id);
	return err ?: machine_push(machine, value_make(VALUE_TEXT, id));
}

/* Takes a line of GLOBAL's text. */
static int line_take(struct pickle_machine *machine, char out[CLASS_LINE])
{
	for (size_t i = 0; i < CLASS_LINE; i++) {
		const unsigned char *byte;
		int err = bytes_take(machine, 1, &byte);

		if (err)
			return err;
		out[i] = *byte == '\n' ? '\0' : (char)*byte;
		if (*byte == '\n')
			return 0;
		if (!*byte)
			break;
	}
	return machine_corrupt("a class with an invalid name");
}

static int push_global(struct pickle_machine *machine)
{
	char module[CLASS_LINE], name[CLASS_LINE];
	uint64_t class;

	return line_take(machine, module)
	       ?: line_take(machine, name)
	       ?: values_class(module, name, &class)
	       ?: machine_push(machine, class);
}

static int push_stack_global(struct pickle_machine *machine)
{
	const struct strings *strings = machine->values.snapshot->strings;
	const uint64_t *items;
	uint64_t class;
	int err = pop(machine, 2, &items);

	if (err)
		return err;
	if (value_kind(items[0]) != VALUE_TEXT || value_kind(items[1]) != VALUE_TEXT)
		return machine_corrupt("a class without a name");
	return values_class(strings_get(strings, (uint32_t)value_which(items[0])),
			    strings_get(strings, (uint32_t)value_which(items[1])), &class)
		       ?: machine_push(machine, class);
}

static int push_object(struct pickle_machine *machine)
{
	const uint64_t *items;
	uint64_t object;
	int err = pop(machine, 2, &items);

	if (!err && value_kind(items[1]) != VALUE_EMPTY_TUPLE)
		return machine_corrupt("an object made with arguments");
	err = err ?: values_object(&machine->values, items[0], &object);
	return err ?: machine_push(machine, object);
}

static int push_tuple(struct pickle_machine *machine, const uint64_t *items, size_t count)
{
	uint64_t tuple;

	return values_tuple(&machine->values, items, count, &tuple) ?: machine_push(machine, tuple);
}

static int push_popped_tuple(struct pickle_machine *machine, size_t count)
{
	const uint64_t *items;

	return pop(machine, count, &items) ?: push_tuple(machine, items, count);
}

static int push_marked_tuple(struct pickle_machine *machine)
{
	const uint64_t *items;
	size_t count;

	return mark_pop(machine, &items, &count) ?: push_tuple(machine, items, count);
}

static int push_made(struct pickle_machine *machine,
		     int (*make)(struct values *values, uint64_t *value))
{
	uint64_t value;

	return make(&machine->values, &value) ?: machine_push(machine, value);
}

static int memo_get(struct pickle_machine *machine, size_t n)
{
	uint64_t index;
	int err = number_take(machine, n, &index);

	if (!err && index >= machine->memo_count)
		return error_set(-EBADMSG, "entry %llu of a memo of %zu", (unsigned long long)index,
				 machine->memo_count);
	return err ?: machine_push(machine, machine->memo[index]);
}

static int memo_put_numbered(struct pickle_machine *machine, size_t n)
{
	uint64_t index;

	return number_take(machine, n, &index) ?: machine_memoize(machine, index);
}

static int mark_push(struct pickle_machine *machine)
{
	if (machine->mark_count == MARKS_MAX)
		return machine_corrupt("things nested too deeply");
	machine->marks[machine->mark_count++] = machine->depth;
	return 0;
}

/* The value below the ones just popped, which stays. */
static int top_get(const struct pickle_machine *machine, uint64_t *top)
{
	if (!machine_depth(machine))
		return machine_corrupt("the stack holds too little");
	*top = machine->stack[machine->depth - 1];
	return 0;
}

static int append(struct pickle_machine *machine, int marked)
{
	const uint64_t *items;
	size_t count = 1;
	uint64_t list;
	int err = marked ? mark_pop(machine, &items, &count) : pop(machine, 1, &items);

	err = err ?: top_get(machine, &list);
	return err ?: values_append(&machine->values, list, items, count);
}

static int setitems(struct pickle_machine *machine, int marked)
{
	const uint64_t *items;
	size_t count = 2;
	uint64_t dict;
	int err = marked ? mark_pop(machine, &items, &count) : pop(machine, 2, &items);

	err = err ?: top_get(machine, &dict);
	if (!err && count % 2)
		return machine_corrupt("an attribute without a value");
	for (size_t i = 0; !err && i < count; i += 2)
		err = values_set(&machine->values, dict, items[i], items[i + 1]);
	return err;
}

static int build(struct pickle_machine *machine)
{
	const uint64_t *state;
	uint64_t object;

	return pop(machine, 1, &state)
	       ?: top_get(machine, &object)
	       ?: values_build(&machine->values, object, *state);
}

/* FRAME announces bytes to readers that buffer; ignored here, but a wrong one is corrupt. */
static int frame_skip(struct pickle_machine *machine)
{
	uint64_t bytes;
	int err = number_take(machine, 8, &bytes);

	return !err && bytes > INT64_MAX ? machine_corrupt("an invalid frame") : err;
}

static int stop(struct pickle_machine *machine)
{
	int err = infile_fill(machine->file, 1);

	if (err)
		return err;
	if (machine->file->end > machine->file->at)
		return machine_corrupt("more bytes follow the end of the pickle");
	if (machine->depth != 1 || machine->mark_count)
		return machine_corrupt("the end, and more than one thing on the stack");
	machine->stopped = 1;
	return 0;
}

/* Instructions that push a number, a text or None; any other is corrupt. */
static int scalar_run(struct pickle_machine *machine, unsigned char opcode)
{
	switch (opcode) {
	case PICKLE_BININT:
		return push_number(machine, 4);
	case PICKLE_BININT1:
		return push_number(machine, 1);
	case PICKLE_BININT2:
		return push_number(machine, 2);
	case PICKLE_LONG1:
		return push_long(machine);
	case PICKLE_NONE:
		return machine_push(machine, value_make(VALUE_NONE, 0));
	case PICKLE_SHORT_BINUNICODE:
		return push_text(machine, 1);
	case PICKLE_BINUNICODE:
		return push_text(machine, 4);
	case PICKLE_BINUNICODE8:
		return push_text(machine, 8);
	default:
		return error_set(-EBADMSG, "0x%02x is not an instruction of a file of tracemalloc",
				 opcode);
	}
}

static int instruction_run(struct pickle_machine *machine, unsigned char opcode)
{
	switch ((enum pickle_opcode)opcode) {
	case PICKLE_MARK:
		return mark_push(machine);
	case PICKLE_STOP:
		return stop(machine);
	case PICKLE_TUPLE:
		return push_marked_tuple(machine);
	case PICKLE_EMPTY_TUPLE:
		return push_tuple(machine, NULL, 0);
	case PICKLE_TUPLE1:
	case PICKLE_TUPLE2:
	case PICKLE_TUPLE3:
		return push_popped_tuple(machine, opcode - PICKLE_TUPLE1 + 1u);
	case PICKLE_EMPTY_LIST:
		return push_made(machine, values_list);
	case PICKLE_EMPTY_DICT:
		return push_made(machine, values_dict);
	case PICKLE_APPEND:
	case PICKLE_APPENDS:
		return append(machine, opcode == PICKLE_APPENDS);
	case PICKLE_SETITEM:
	case PICKLE_SETITEMS:
		return setitems(machine, opcode == PICKLE_SETITEMS);
	case PICKLE_GLOBAL:
		return push_global(machine);
	case PICKLE_STACK_GLOBAL:
		return push_stack_global(machine);
	case PICKLE_NEWOBJ:
		return push_object(machine);
	case PICKLE_BUILD:
		return build(machine);
	case PICKLE_BINGET:
		return memo_get(machine, 1);
	case PICKLE_LONG_BINGET:
		return memo_get(machine, 4);
	case PICKLE_BINPUT:
		return memo_put_numbered(machine, 1);
	case PICKLE_LONG_BINPUT:
		return memo_put_numbered(machine, 4);
	case PICKLE_MEMOIZE:
		return machine_memoize(machine, machine->memo_count);
	case PICKLE_FRAME:
		return frame_skip(machine);
	default:
		return scalar_run(machine, opcode);
	}
}

static int header_take(struct pickle_machine *machine)
{
	const unsigned char *header;
	int err = bytes_take(machine, 2, &header);

	if (err)
		return err;
	if (header[0] != PICKLE_PROTO)
		return machine_corrupt("not a pickle of protocol 2 or later");
	if (header[1] < 2 || header[1] > 5)
		return error_set(-EBADMSG, "pickle protocol %u; 2 to 5 can be read", header[1]);
	return 0;
}

/* Reserves all at once: growing arrays would be moved page by page, unfilled memory is free. */
static int capacity_make(struct pickle_machine *machine)
{
	enum { TRACE_BYTES = 12 }; /* the smallest size of a trace in a file */
	struct stat st;

	if (machine->file->fd < 0 || fstat(machine->file->fd, &st) || !S_ISREG(st.st_mode))
		return 0;
	size_t expected = (size_t)st.st_size / TRACE_BYTES;
	if (expected < TRACES_MANY || expected >= UINT32_MAX)
		return 0;
	int err = values_expect(&machine->values, expected);
	return err ? err
		   : array_reserve(&machine->memo, &machine->memo_capacity, 0, expected,
				   sizeof(*machine->memo));
}

static int machine_run(struct pickle_machine *machine, struct snapshot **out)
{
	int err = header_take(machine);

	if (!err) /* so that the stack is never NULL, even if it is empty */
		err = array_reserve(&machine->stack, &machine->stack_capacity, 0, 1024,
				    sizeof(*machine->stack));
	err = err ?: capacity_make(machine);
	while (!err && !machine->stopped) {
		const unsigned char *opcode;

		err = machine_traces(machine);
		if (err)
			break;
		machine->at = infile_offset(machine->file);
		err = bytes_take(machine, 1, &opcode) ?: instruction_run(machine, *opcode);
	}
	return err ?: values_finish(&machine->values, machine->stack[0], out);
}

int tracemalloc_read(struct infile *file, struct snapshot **out)
{
	struct pickle_machine machine = {.file = file};
	int err = values_begin(&machine.values) ?: machine_run(&machine, out);

	if (err == -EBADMSG)
		error_set(err, "byte %llu: %s", (unsigned long long)machine.at, error_reason(err));
	free(machine.stack);
	free(machine.memo);
	values_free(&machine.values);
	return err;
}
