/* SPDX-License-Identifier: Apache-2.0 */
#include "report/tracemalloc/tracemalloc_values.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "report/tracemalloc/pickle.h"
#include "util/array.h"
#include "util/error.h"

#define FILES_MAX  (1u << 28) /* text ids that a frame can name */
#define FRAMES_MAX 65535u     /* the greatest limit that tracemalloc takes */

int values_begin(struct values *values)
{
	*values = (struct values){.snapshot = calloc(1, sizeof(*values->snapshot))};
	if (!values->snapshot)
		return -ENOMEM;
	if (getrandom(&values->other_totals.seed, sizeof(values->other_totals.seed),
		      GRND_NONBLOCK) < 0)
		values->other_totals.seed = (uintptr_t)values;
	return strings_new(&values->snapshot->strings);
}

int values_expect(struct values *values, size_t traces)
{
	return array_reserve(&values->snapshot->traces, &values->trace_capacity, 0, traces,
			     sizeof(*values->snapshot->traces));
}

void values_free(struct values *values)
{
	snapshot_free(values->snapshot);
	free(values->list);
	id_map_free(&values->other_totals);
}

int values_class(const char *module, const char *name, uint64_t *value)
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

int values_object(struct values *values, uint64_t class, uint64_t *value)
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

int values_trace(struct values *values, uint32_t domain, uint64_t bytes, uint32_t traceback,
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

int values_tuple(struct values *values, const uint64_t *items, size_t count, uint64_t *value)
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

int values_list(struct values *values, uint64_t *value)
{
	if (values->list_made++)
		return error_set(-EBADMSG, "a second list");
	*value = value_make(VALUE_LIST, 0);
	return 0;
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

int values_append(struct values *values, uint64_t list, const uint64_t *items, size_t count)
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

int values_dict(struct values *values, uint64_t *value)
{
	if (values->dict_count == CLASSES)
		return error_set(-EBADMSG, "a third dictionary");
	*value = value_make(VALUE_DICT, values->dict_count++);
	return 0;
}

int values_set(struct values *values, uint64_t dict, uint64_t key, uint64_t item)
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

int values_build(struct values *values, uint64_t object, uint64_t state)
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

int values_finish(struct values *values, uint64_t object, struct snapshot **out)
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
