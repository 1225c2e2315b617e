/* SPDX-License-Identifier: Apache-2.0 */
#include "report/tracemalloc/tracemalloc.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "report/tracemalloc/pickle.h"
#include "snapshot/snapshot.h"
#include "util/array.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/infile.h"
#include "util/utf8.h"

/*
 * The values of the pickle machine below. A value has 64 bits: its kind in the
 * upper four, its content or index in the others. Frames, tracebacks and traces are recognised when
 * their tuple is built, and go directly into the snapshot: nothing of the file is stored twice.
 */

enum value_kind {
	VALUE_NONE,
	VALUE_NUMBER,    /* the number itself, below 2^60 */
	VALUE_TEXT,      /* id in the snapshot's strings */
	VALUE_FRAME,     /* text id << 32 | line, the id below 2^28 */
	VALUE_TRACEBACK, /* index in the snapshot's tracebacks */
	VALUE_TRACE,     /* index in the snapshot's traces */
	VALUE_EMPTY_TUPLE,
	VALUE_CLASS,  /* enum value_class */
	VALUE_OBJECT, /* likewise: there is one of each */
	VALUE_DICT,   /* index in dicts */
	VALUE_LIST,   /* the only one; also a tuple of traces */
};

/* The total_nframe of a traceback before its first trace. */
#define TOTAL_UNSET (SNAPSHOT_TOTAL_UNKNOWN - 1)

enum value_class { CLASS_SNAPSHOT, CLASS_TRACES, CLASSES };

#define VALUE_BITS 60
static uint64_t value_make(enum value_kind kind, uint64_t which)
{
	return (uint64_t)kind << VALUE_BITS | which;
}
static enum value_kind value_kind(uint64_t value)
{
	return (enum value_kind)(value >> VALUE_BITS);
}
static uint64_t value_which(uint64_t value)
{
	return value & ((1ull << VALUE_BITS) - 1);
}

/* The state of an object: the attributes of its class. */
struct value_dict {
	int has_traces, has_limit;
	uint64_t traces; /* CLASS_SNAPSHOT: of "traces", CLASS_TRACES: of "_traces" */
	uint32_t limit;  /* "traceback_limit" */
};

struct values {
	struct snapshot *snapshot; /* owned until values_finish() */
	size_t frame_capacity, traceback_capacity, trace_capacity;
	struct id_map other_totals; /* traceback << 32 | total -> the same frames with that total */
	int list_made;              /* the only list */
	size_t list_count, list_capacity;
	uint32_t *list; /* indices of traces; NULL: 0, 1, 2 … */
	uint64_t bytes; /* of the traces in the list */
	struct value_dict dicts[CLASSES];
	size_t dict_count;
	int object_made[CLASSES], object_built[CLASSES];
	struct value_dict objects[CLASSES];
};

/* The pickle machine: a stack, marks on it, a memo. */

#define MARKS_MAX 16u /* a file of tracemalloc nests six deep */

struct pickle_machine {
	struct infile *file;
	struct values values;
	uint64_t *stack, *memo;
	size_t depth, stack_capacity, memo_count, memo_capacity;
	size_t marks[MARKS_MAX], mark_count;
	uint64_t at; /* offset of the instruction */
	int stopped;
};

static int machine_corrupt(const char *what)
{
	error_set(-EBADMSG, "%s", what);
	return -EBADMSG; /* never 0, which the compiler can see here */
}

static int machine_push(struct pickle_machine *machine, uint64_t value)
{
	if (machine->depth == machine->stack_capacity) {
		int err = ARRAY_GROW(machine->stack, machine->stack_capacity, machine->depth);
		if (err)
			return err;
	}
	machine->stack[machine->depth++] = value;
	return 0;
}

/* The number of values above the last mark, which may be popped. */
static size_t machine_depth(const struct pickle_machine *machine)
{
	return machine->depth - (machine->mark_count ? machine->marks[machine->mark_count - 1] : 0);
}

static int machine_memoize(struct pickle_machine *machine, uint64_t index)
{
	if (!machine_depth(machine))
		return machine_corrupt("the stack holds too little");
	if (index > machine->memo_count)
		return error_set(-EBADMSG, "entry %llu of a memo of %zu", (unsigned long long)index,
				 machine->memo_count);
	if (index == machine->memo_count) {
		if (machine->memo_count == machine->memo_capacity) {
			int err = ARRAY_GROW(machine->memo, machine->memo_capacity,
					     machine->memo_count);
			if (err)
				return err;
		}
		machine->memo_count++;
	}
	machine->memo[index] = machine->stack[machine->depth - 1];
	return 0;
}

#define FILES_MAX  (1u << 28) /* text ids that a frame can name */
#define FRAMES_MAX 65535u     /* the greatest limit that tracemalloc takes */

/* All return 0; -EBADMSG with a reason, without the offset; -ENOMEM, -EOVERFLOW. */
static int values_begin(struct values *values)
{
	*values = (struct values){.snapshot = calloc(1, sizeof(*values->snapshot))};
	if (!values->snapshot)
		return -ENOMEM;
	if (getrandom(&values->other_totals.seed, sizeof(values->other_totals.seed),
		      GRND_NONBLOCK) < 0)
		values->other_totals.seed = (uintptr_t)values;
	return strings_new(&values->snapshot->strings);
}

/* reserves memory for `traces` traces */
static int values_expect(struct values *values, size_t traces)
{
	return array_reserve(&values->snapshot->traces, &values->trace_capacity, 0, traces,
			     sizeof(*values->snapshot->traces));
}

static void values_free(struct values *values)
{
	snapshot_free(values->snapshot);
	free(values->list);
	id_map_free(&values->other_totals);
}

static int values_class(const char *module, const char *name, uint64_t *value)
{
	static const char *const names[CLASSES] = {PICKLE_SNAPSHOT, PICKLE_TRACES};

	for (unsigned int i = 0; i < CLASSES; i++) {
		if (!strcmp(module, PICKLE_MODULE) && !strcmp(name, names[i])) {
			*value = value_make(VALUE_CLASS, i);
			return 0;
		}
	}
	return error_set(-EBADMSG,
			 "%.80s.%.80s is named, where a file of tracemalloc has only its Snapshot "
			 "and _Traces; nothing was executed",
			 module, name);
}

static int values_object(struct values *values, uint64_t class, uint64_t *value)
{
	if (value_kind(class) != VALUE_CLASS)
		return error_set(-EBADMSG, "an object of no class");
	if (values->object_made[value_which(class)]++)
		return error_set(-EBADMSG, "a second object of the same class");
	*value = value_make(VALUE_OBJECT, value_which(class));
	return 0;
}

static int frame_make(const uint64_t *items, uint64_t *value)
{
	if (value_which(items[1]) > UINT32_MAX)
		return error_set(-EBADMSG, "a line number of %llu",
				 (unsigned long long)value_which(items[1]));
	if (value_which(items[0]) >= FILES_MAX)
		return error_set(-EBADMSG, "more than %u names", FILES_MAX);
	*value = value_make(VALUE_FRAME, value_which(items[0]) << 32 | value_which(items[1]));
	return 0;
}

/* Adds a traceback whose frames are in the snapshot already; its total is not known yet. */
static int traceback_add(struct values *values, uint32_t first, uint32_t nframe, uint32_t *index)
{
	struct snapshot *snapshot = values->snapshot;
	int err = ARRAY_GROW(snapshot->tracebacks, values->traceback_capacity,
			     snapshot->traceback_count);

	if (err)
		return err;
	snapshot->tracebacks[snapshot->traceback_count] =
		(struct snapshot_traceback){.first = first, .nframe = nframe, .total = TOTAL_UNSET};
	*index = (uint32_t)snapshot->traceback_count++;
	return 0;
}

static int traceback_make(struct values *values, const uint64_t *items, size_t count,
			  uint64_t *value)
{
	struct snapshot *snapshot = values->snapshot;
	uint32_t index;

	if (count > FRAMES_MAX)
		return error_set(-EBADMSG, "a traceback of %zu frames", count);
	for (size_t i = 0; i < count; i++)
		if (value_kind(items[i]) != VALUE_FRAME)
			return error_set(-EBADMSG,
					 "a traceback that contains something other than frames");
	int err = array_reserve(&snapshot->frames, &values->frame_capacity, snapshot->frame_count,
				count, sizeof(*snapshot->frames));
	err = err
		      ?: traceback_add(values, (uint32_t)snapshot->frame_count, (uint32_t)count,
				       &index);
	if (err)
		return err;
	for (size_t i = 0; i < count; i++)
		snapshot->frames[snapshot->frame_count++] =
			(struct snapshot_frame){.filename = (uint32_t)(value_which(items[i]) >> 32),
						.line = (uint32_t)items[i]};
	*value = value_make(VALUE_TRACEBACK, index);
	return 0;
}

/*
 * Finds the traceback with this total. total_nframe belongs to the trace in Python, but is nearly
 * always the same for all traces of a traceback.
 */
static int traceback_total(struct values *values, uint32_t *index, uint32_t total)
{
	struct snapshot *snapshot = values->snapshot;
	struct snapshot_traceback *traceback = &snapshot->tracebacks[*index];
	uint64_t key = (uint64_t)*index << 32 | total;

	if (traceback->total == TOTAL_UNSET)
		traceback->total = total;
	if (traceback->total == total)
		return 0;
	*index = id_map_find(&values->other_totals, key);
	if (*index != ID_MAP_NONE)
		return 0;
	int err = traceback_add(values, traceback->first, traceback->nframe, index);
	if (err)
		return err;
	snapshot->tracebacks[*index].total = total;
	return id_map_put(&values->other_totals, key, *index);
}

/*
 * The value of a trace whose parts are known; the traceback is an index into the snapshot's.
 */
static int values_trace(struct values *values, uint32_t domain, uint64_t bytes, uint32_t traceback,
			uint32_t total, uint64_t *value)
{
	struct snapshot *snapshot = values->snapshot;
	int err = traceback_total(values, &traceback, total);

	if (!err && snapshot->trace_count == values->trace_capacity)
		err = ARRAY_GROW(snapshot->traces, values->trace_capacity, snapshot->trace_count);
	if (err)
		return err;
	*value = value_make(VALUE_TRACE, snapshot->trace_count);
	snapshot->traces[snapshot->trace_count++] = (struct snapshot_trace){
		.traceback = traceback, .domain = domain, .bytes = bytes, .count = 1};
	return 0;
}

static int trace_make(struct values *values, const uint64_t *items, size_t count, uint64_t *value)
{
	uint64_t domain = value_which(items[0]), total = SNAPSHOT_TOTAL_UNKNOWN;

	if (value_kind(items[1]) != VALUE_NUMBER || value_kind(items[2]) != VALUE_TRACEBACK ||
	    domain > UINT32_MAX)
		return error_set(-EBADMSG,
				 "a trace that is not (domain, size, traceback, total_nframe)");
	if (count == 4 && value_kind(items[3]) != VALUE_NONE) {
		total = value_which(items[3]);
		if (value_kind(items[3]) != VALUE_NUMBER || total >= TOTAL_UNSET)
			return error_set(-EBADMSG, "a trace with an invalid total_nframe");
	}
	return values_trace(values, (uint32_t)domain, value_which(items[1]),
			    (uint32_t)value_which(items[2]), (uint32_t)total, value);
}

/*
 * The traces are nearly always listed in the order of their creation. The order is recorded only
 * from the first deviation on.
 */
static int list_reorder(struct values *values)
{
	for (size_t i = 0; i < values->list_count; i++) {
		int err = ARRAY_GROW(values->list, values->list_capacity, i);

		if (err)
			return err;
		values->list[i] = (uint32_t)i;
	}
	return 0;
}

static int list_add(struct values *values, uint32_t trace)
{
	int err = 0;

	if (__builtin_add_overflow(values->bytes, values->snapshot->traces[trace].bytes,
				   &values->bytes) ||
	    values->bytes > INT64_MAX)
		return error_set(-EBADMSG, "sizes whose sum exceeds 2^63");
	if (!values->list && trace != values->list_count)
		err = list_reorder(values);
	if (!err && (values->list || trace != values->list_count)) {
		err = ARRAY_GROW(values->list, values->list_capacity, values->list_count);
		if (!err)
			values->list[values->list_count] = trace;
	}
	values->list_count += !err;
	return err;
}

static int values_list(struct values *values, uint64_t *value)
{
	if (values->list_made++)
		return error_set(-EBADMSG, "a second list");
	*value = value_make(VALUE_LIST, 0);
	return 0;
}

static int values_append(struct values *values, uint64_t list, const uint64_t *items, size_t count)
{
	int err = 0;

	if (value_kind(list) != VALUE_LIST)
		return error_set(-EBADMSG, "an item is added to something that is not a list");
	for (size_t i = 0; !err && i < count; i++) {
		if (value_kind(items[i]) != VALUE_TRACE)
			return error_set(-EBADMSG, "the list contains something that is not a "
						   "trace");
		err = list_add(values, (uint32_t)value_which(items[i]));
	}
	return err;
}

static int values_tuple(struct values *values, const uint64_t *items, size_t count, uint64_t *value)
{
	enum value_kind first = count ? value_kind(items[0]) : VALUE_EMPTY_TUPLE;

	if (first == VALUE_NUMBER && (count == 3 || count == 4))
		return trace_make(values, items, count, value);
	if (first == VALUE_TEXT && count == 2 && value_kind(items[1]) == VALUE_NUMBER)
		return frame_make(items, value);
	if (first == VALUE_FRAME)
		return traceback_make(values, items, count, value);
	if (first == VALUE_TRACE) {
		return values_list(values, value) ?: values_append(values, *value, items, count);
	}
	if (count)
		return error_set(-EBADMSG, "a tuple that is not a frame, a traceback or a trace");
	*value = value_make(VALUE_EMPTY_TUPLE, 0);
	return 0;
}

static int values_dict(struct values *values, uint64_t *value)
{
	if (values->dict_count == CLASSES)
		return error_set(-EBADMSG, "a third dictionary");
	*value = value_make(VALUE_DICT, values->dict_count++);
	return 0;
}

static int values_set(struct values *values, uint64_t dict, uint64_t key, uint64_t item)
{
	const char *name;

	if (value_kind(dict) != VALUE_DICT || value_kind(key) != VALUE_TEXT)
		return error_set(-EBADMSG, "an attribute without an object or a name");
	struct value_dict *state = &values->dicts[value_which(dict)];
	name = strings_get(values->snapshot->strings, (uint32_t)value_which(key));
	if (!strcmp(name, "traceback_limit")) {
		if (value_kind(item) != VALUE_NUMBER || value_which(item) > UINT32_MAX)
			return error_set(-EBADMSG, "an invalid traceback_limit");
		state->has_limit = 1;
		state->limit = (uint32_t)value_which(item);
		return 0;
	}
	if (strcmp(name, "traces") && strcmp(name, "_traces"))
		return error_set(-EBADMSG, "an attribute '%.80s'", name);
	/* A Snapshot's traces are a _Traces object; that object's _traces are a list. */
	int object = value_kind(item) == VALUE_OBJECT && value_which(item) == CLASS_TRACES;
	int list = value_kind(item) == VALUE_LIST || value_kind(item) == VALUE_EMPTY_TUPLE;
	if (name[0] == '_' ? !list : !object)
		return error_set(-EBADMSG, "invalid traces");
	state->has_traces = 1;
	state->traces = item;
	return 0;
}

static int values_build(struct values *values, uint64_t object, uint64_t state)
{
	if (value_kind(object) != VALUE_OBJECT || value_kind(state) != VALUE_DICT)
		return error_set(-EBADMSG, "a state without an object");
	enum value_class class = (enum value_class)value_which(object);
	const struct value_dict *dict = &values->dicts[value_which(state)];
	if (!dict->has_traces || dict->has_limit != (class == CLASS_SNAPSHOT) ||
	    (value_kind(dict->traces) == VALUE_OBJECT) != (class == CLASS_SNAPSHOT))
		return error_set(-EBADMSG, "an object whose attributes are not its own");
	values->objects[class] = *dict;
	values->object_built[class] = 1;
	return 0;
}

/* Sorts the traces in the order of the list, and drops those that are not in it. */
static int traces_order(struct values *values)
{
	struct snapshot *snapshot = values->snapshot;

	if (!values->list) {
		snapshot->trace_count = values->list_count;
		return 0;
	}
	struct snapshot_trace *traces = reallocarray(NULL, values->list_count, sizeof(*traces));
	if (!traces)
		return -ENOMEM;
	for (size_t i = 0; i < values->list_count; i++)
		traces[i] = snapshot->traces[values->list[i]];
	free(snapshot->traces);
	snapshot->traces = traces;
	snapshot->trace_count = values->list_count;
	return 0;
}

/* Returns the snapshot, the only object of the file. */
static int values_finish(struct values *values, uint64_t object, struct snapshot **out)
{
	struct snapshot *snapshot = values->snapshot;

	if (object != value_make(VALUE_OBJECT, CLASS_SNAPSHOT) ||
	    !values->object_built[CLASS_SNAPSHOT] || !values->object_built[CLASS_TRACES])
		return error_set(-EBADMSG, "the end, without a complete Snapshot");
	int err = traces_order(values);
	if (err)
		return err;
	for (size_t i = 0; i < snapshot->traceback_count; i++)
		if (snapshot->tracebacks[i].total == TOTAL_UNSET) /* not used by any trace */
			snapshot->tracebacks[i].total = SNAPSHOT_TOTAL_UNKNOWN;
	snapshot->meta.traceback_limit = values->objects[CLASS_SNAPSHOT].limit;
	strcpy(snapshot->meta.mode, SNAPSHOT_TRACEMALLOC);
	*out = snapshot;
	values->snapshot = NULL;
	return 0;
}

/*
 * The part of the pickle machine that tracemalloc's files need: a stack, marks on it, and a memo
 * whose entries are numbered in order. instruction_run() has the instructions, values_tuple() and
 * the like the values that are allowed.
 */

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
	uint64_t object = 0;
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
	uint64_t value = 0;

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
