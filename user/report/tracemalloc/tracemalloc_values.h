/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of the pickle machine in tracemalloc_read.c. A value has 64 bits: its kind in the
 * upper four, its content or index in the others. Frames, tracebacks and traces are recognised when
 * their tuple is built, and go directly into the snapshot: nothing of the file is stored twice.
 */
#pragma once

#include <stdint.h>

#include "snapshot/snapshot.h"
#include "util/id_map.h"

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
static inline uint64_t value_make(enum value_kind kind, uint64_t which)
{
	return (uint64_t)kind << VALUE_BITS | which;
}
static inline enum value_kind value_kind(uint64_t value)
{
	return (enum value_kind)(value >> VALUE_BITS);
}
static inline uint64_t value_which(uint64_t value)
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

/* All return 0; -EBADMSG with a reason, without the offset; -ENOMEM, -EOVERFLOW. */
int values_begin(struct values *values);
int values_expect(struct values *values, size_t traces); /* reserves memory for `traces` traces */
int values_class(const char *module, const char *name, uint64_t *value);
int values_object(struct values *values, uint64_t class, uint64_t *value);
int values_tuple(struct values *values, const uint64_t *items, size_t count, uint64_t *value);
/*
 * The same as values_tuple() for a trace whose parts are known; the traceback is an index into the
 * snapshot's.
 */
int values_trace(struct values *values, uint32_t domain, uint64_t bytes, uint32_t traceback,
		 uint32_t total, uint64_t *value);
int values_list(struct values *values, uint64_t *value);
int values_dict(struct values *values, uint64_t *value);
int values_append(struct values *values, uint64_t list, const uint64_t *items, size_t count);
int values_set(struct values *values, uint64_t dict, uint64_t key, uint64_t item);
int values_build(struct values *values, uint64_t object, uint64_t state);
/* Returns the snapshot, the only object of the file. */
int values_finish(struct values *values, uint64_t object, struct snapshot **out);
void values_free(struct values *values);
