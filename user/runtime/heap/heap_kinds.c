/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/heap/heap_kinds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/heap/heap_types.h"
#include "runtime/heap/object_types.h"
#include "util/clock.h"
#include "util/hash.h"

#define MAX_TYPES 65536u /* objects of further types count as no objects */
#define MAX_LOOKS 262144u

/* Py_TPFLAGS_LONG_SUBCLASS, …: types whose objects have content that never changes */
#define FLAG_LONG    (1ull << 24)
#define FLAG_LIST    (1ull << 25)
#define FLAG_TUPLE   (1ull << 26)
#define FLAG_BYTES   (1ull << 27)
#define FLAG_UNICODE (1ull << 28)
#define FLAG_DICT    (1ull << 29)
#define FLAGS_LENGTH (FLAG_LONG | FLAG_TUPLE | FLAG_BYTES | FLAG_UNICODE)
/* the word after the type: the length; of a long, its size and sign */
#define LENGTH_AT 16u
#define DIGIT_AT  24u
/*
 * Content that never changes. Behind the length of bytes, and of a tuple since 3.14, there is a
 * hash that is computed when asked for. Behind that of a str is the state, of which the bits of
 * the kind are final, and in longer ones texts that are computed when asked for.
 */
/* The address of the items of a list, and of a dict's keys, changes only when these grow. */
#define LIST_ITEMS_AT  24u
#define DICT_KEYS_AT   32u
#define CONTENT_AT     32u
#define STR_STATE_AT   32u
#define STR_CONTENT_AT 72u /* of any, in every version */
#define STR_ASCII_AT   48u /* of ASCII */
#define STR_ASCII      (1u << 6)
#define STR_ASCII_3_14 (1u << 20)
#define VERSION_3_14   0x030e0000u

struct heap_kinds {
	struct object_types objects;
	struct heap_types types;
};

int heap_kinds_new(struct heap_kinds **out, const struct python_runtime *runtime)
{
	struct heap_kinds *kinds = calloc(1, sizeof(*kinds));

	if (!kinds)
		return -ENOMEM;
	int err = object_types_open(&kinds->objects, runtime, MAX_TYPES, MAX_LOOKS, &kinds->types);
	if (err) {
		heap_kinds_free(kinds);
		return err;
	}
	*out = kinds;
	return 0;
}

void heap_kinds_free(struct heap_kinds *kinds)
{
	if (!kinds)
		return;
	object_types_close(&kinds->objects);
	heap_types_free(&kinds->types);
	free(kinds);
}

static uint32_t fold(uint64_t value)
{
	uint32_t folded = (uint32_t)(hash_u64(value) >> 32);

	return folded < EVENT_KIND_FIRST ? folded + EVENT_KIND_FIRST : folded;
}

/* Of an object's type, and of its length if that is a part of its content that never changes. */
static uint32_t kind_of(const struct heap_type *type, const uint8_t *object, uint32_t bytes)
{
	uint32_t kind = fold(type->address);
	uint64_t length;

	if (kind <= EVENT_KIND_LENGTH)
		kind += EVENT_KIND_LENGTH + 1;
	if (!(type->flags & FLAGS_LENGTH) || bytes < DIGIT_AT)
		return kind;
	memcpy(&length, object + LENGTH_AT, sizeof(length));
	return (kind & ~EVENT_KIND_LENGTH) | (uint32_t)(length & EVENT_KIND_LENGTH);
}

/* Where the text of a str begins at the latest. */
static uint32_t text_at(const struct heap_kinds *kinds, const uint8_t *object, uint32_t bytes)
{
	uint32_t ascii =
		kinds->objects.runtime->version_hex < VERSION_3_14 ? STR_ASCII : STR_ASCII_3_14;
	uint32_t state = 0;

	if (bytes >= STR_STATE_AT + sizeof(state))
		memcpy(&state, object + STR_STATE_AT, sizeof(state));
	return state & ascii ? STR_ASCII_AT : STR_CONTENT_AT;
}

/* Of an object that refers to its content. */
static uint32_t pointer_print(const struct heap_type *type, const uint8_t *object, uint32_t bytes)
{
	uint32_t at = type->flags & FLAG_LIST ? LIST_ITEMS_AT : DICT_KEYS_AT;
	uint64_t address = 0;

	if (bytes >= at + sizeof(address))
		memcpy(&address, object + at, sizeof(address));
	return address ? fold(address) : 0;
}

/*
 * A hash of an object's content that never changes; 0: its type has none that is known. What is
 * behind the object in its block is never written to.
 */
static uint32_t print_of(const struct heap_kinds *kinds, const struct heap_type *type,
			 const uint8_t *object, uint32_t bytes)
{
	uint32_t at = type->flags & FLAG_LONG      ? DIGIT_AT
		      : type->flags & FLAG_UNICODE ? text_at(kinds, object, bytes)
						   : CONTENT_AT;
	uint64_t hash = 0, word;

	if (type->flags & (FLAG_LIST | FLAG_DICT))
		return pointer_print(type, object, bytes);
	if (!(type->flags & FLAGS_LENGTH) || bytes < DIGIT_AT)
		return 0;
	memcpy(&hash, object + LENGTH_AT, sizeof(hash));
	for (; at + sizeof(word) <= bytes; at += sizeof(word)) {
		memcpy(&word, object + at, sizeof(word));
		hash = hash_u64(hash ^ word);
	}
	return fold(hash);
}

struct event_census_kind heap_kinds_of(struct heap_kinds *kinds, const uint8_t *content,
				       uint32_t bytes)
{
	uint32_t before = object_hooks_before(content, bytes), at;
	int found = object_types_find(&kinds->objects, content + before, bytes - before, 0);

	if (found < 0) {
		found = object_types_find(&kinds->objects, content + before, bytes - before, 1);
		return (struct event_census_kind){.kind = found < 0 ? EVENT_KIND_OTHER
								    : EVENT_KIND_DEAD};
	}
	const struct heap_type *type = &kinds->types.types[found];
	at = before + object_types_offset(&kinds->objects, type->flags);
	if (at >= bytes)
		at = bytes;
	return (struct event_census_kind){.kind = kind_of(type, content + at, bytes - at),
					  .print = print_of(kinds, type, content + at, bytes - at)};
}

void heap_kinds_record(struct heap_kinds *kinds, const struct heap_pool *pool, uint64_t id,
		       struct event_census_kinds *out)
{
	uint32_t count = pool->block_bytes ? pool->count : 0;

	out->header.type = EVENT_CENSUS_KINDS;
	out->header.size = (uint32_t)(sizeof(*out) + count * sizeof(out->kinds[0]));
	out->id = id;
	out->address = pool->address;
	out->block_bytes = pool->block_bytes;
	out->count = count;
	memset(out->kinds, 0, count * sizeof(out->kinds[0]));
	for (uint32_t i = 0; i < count; i++)
		if (heap_pool_live(pool, i))
			out->kinds[i] =
				heap_kinds_of(kinds, pool->content + (size_t)i * pool->block_bytes,
					      pool->block_bytes);
}

struct reading {
	const struct python_runtime *runtime;
	const struct heap_kinds_opts *opts;
	struct heap_kinds *kinds;
	struct event_census_kinds *record;
};

static int pool_record(const struct heap_pool *pool, void *context)
{
	struct reading *reading = context;
	struct event_census_kinds *record = reading->record;

	heap_kinds_record(reading->kinds, pool, 0, record);
	record->header.time_ns = clock_ns(CLOCK_MONOTONIC);
	record->header.tgid = record->header.tid = (uint32_t)reading->runtime->pid;
	return reading->opts->record(reading->opts->context, record, record->header.size);
}

int heap_kinds_read(const struct python_runtime *runtime, const uint64_t *pools, size_t count,
		    const struct heap_kinds_opts *opts, size_t *done)
{
	struct reading reading = {
		.runtime = runtime, .opts = opts, .record = calloc(1, HEAP_KINDS_BYTES)};
	int err = reading.record ? heap_kinds_new(&reading.kinds, runtime) : -ENOMEM;

	for (*done = 0; !err && *done < count && clock_ns(CLOCK_MONOTONIC) < opts->until_ns;
	     ++*done)
		err = heap_read_pool(runtime, pools[*done], pool_record, &reading);
	heap_kinds_free(reading.kinds);
	free(reading.record);
	return err;
}
