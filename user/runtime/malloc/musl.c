/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (src/malloc/mallocng/meta.h). A group has up to 32 slots of one size, in a mapping of its
 * own or in a slot of a larger group:
 *
 *	{its meta, …; slots}			16 bytes, then the slots
 *
 * Its meta is elsewhere, in an area, a page that begins with a secret of the process:
 *
 *	area:	{secret, next area, number; metas}
 *	meta:	{previous, next, group, avail mask, freed mask, bits}
 *
 * A slot is free if one of the masks has it. A block may begin some way into its slot, which the
 * slot's header then says. The context, a hidden variable, has the secret and the first area. It is
 * found by that: the area that it names begins with the secret that it has, and so do all that
 * follow up to the last, which it names too. Parts of files' data that nobody uses become groups
 * (freeable 0), too.
 */
#include "runtime/malloc/musl.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "runtime/malloc/reader.h"
#include "runtime/malloc/runs.h"
#include "runtime/malloc/statics.h"
#include "util/array.h"
#include "util/error.h"
#include "util/interrupt.h"
#include "util/sorted.h"
#include "util/word.h"

#define UNIT          16u
#define AREA_BYTES    4096u
#define AREA_HEADER   24u
#define META_BYTES    40u
#define AREA_METAS    ((AREA_BYTES - AREA_HEADER) / META_BYTES)
#define CLASSES       48u
#define CLASS_ALONE   63u  /* a block that has its group to itself, and no class */
#define NESTED_MAX    16u  /* groups in slots of groups */
#define LARGE_BYTES   512u /* of the slots whose headers are looked at */
#define TRIES         3
#define PROOFS_MAX    64u /* of what looks like the context */
#define AREAS_LEAST   1024u
#define ASKED_GROUPS  4096u
#define CONTEXT_BYTES 72u /* up to the first of the active groups */

/* In units, by class. */
static const uint16_t class_units[CLASSES] = {
	1,   2,   3,   4,    5,    6,    7,    8,    9,    10,   12,   15,   18,   20,   25,   31,
	36,  42,  50,  63,   72,   84,   102,  127,  146,  170,  204,  255,  292,  340,  409,  511,
	584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
};

struct musl {
	struct space *space; /* shared */
	struct malloc_reader *reader;
	uint64_t context; /* its address */
	uint32_t proofs;
};

/* What of struct malloc_context is needed. */
struct musl_context {
	uint64_t secret;
	uint64_t first_area, last_area;
};

/* A group, or an area of metas. */
struct musl_extent {
	uint64_t address, end;
	uint64_t slot_bytes; /* 0: an area */
	uint32_t count;      /* slots */
	uint32_t free;       /* bit n: slot n is free */
	uint32_t has_class;
};

struct musl_walk {
	struct musl *musl;
	struct musl_context context;
	struct runs runs;
	struct musl_extent *extents; /* by address */
	size_t count, capacity, next;
	size_t areas_left;
};

static bool is_page(uint64_t address)
{
	return address && address % AREA_BYTES == 0 && !(address >> 47);
}

/*
 * struct malloc_context: secret; int init_done, mmap_counter; free_meta_head, avail_meta; three
 * counts; first and last area. Whether these bytes can be one.
 */
static bool context_parse(const uint8_t *bytes, struct musl_context *out)
{
	*out = (struct musl_context){u64_at(bytes), u64_at(bytes + 56), u64_at(bytes + 64)};
	return out->secret && u32_at(bytes + 8) == 1 && is_page(out->first_area) &&
	       is_page(out->last_area) && u64_at(bytes + 32) <= AREA_METAS &&
	       u64_at(bytes + 40) < 1u << 24 && u64_at(bytes + 48) < 32;
}

/* 0: it begins with the secret. */
static int area_check(struct malloc_reader *reader, uint64_t area, uint64_t secret, uint64_t *next)
{
	uint64_t header[3];
	int err = reader_read(reader, area, header, sizeof(header), 0);

	if (err)
		return err;
	*next = header[1];
	return header[0] == secret && (uint32_t)header[2] == AREA_METAS &&
			       (!header[1] || is_page(header[1]))
		       ? 0
		       : -EAGAIN;
}

static size_t areas_limit(pid_t pid)
{
	uint64_t bytes;

	return process_own_bytes_read(pid, &bytes) ? SIZE_MAX : bytes / AREA_BYTES + AREAS_LEAST;
}

/* 0: the list of areas is whole. */
static int context_prove(struct musl *musl, const struct musl_context *context)
{
	size_t left = areas_limit(space_pid(musl->space));
	uint64_t area = context->first_area, next;
	int err = -EAGAIN;

	for (; left--; area = next) {
		err = area_check(musl->reader, area, context->secret, &next);
		if (err || !next)
			break;
	}
	if (!err && area != context->last_area)
		err = -EAGAIN;
	return err;
}

static int context_look(uint64_t address, const uint8_t *bytes, size_t size, void *state)
{
	struct musl *musl = state;
	struct musl_context context;

	for (size_t at = 0; at + CONTEXT_BYTES <= size; at += 8) {
		if (!context_parse(bytes + at, &context) || musl->proofs++ >= PROOFS_MAX)
			continue;
		int err = context_prove(musl, &context);

		if (space_is_fatal(err))
			return err;
		if (err)
			continue;
		musl->context = address + at;
		return 1;
	}
	return 0;
}

static bool is_musl(const char *name)
{
	return !strcmp(name, "libc.so") || !strncmp(name, "ld-musl-", strlen("ld-musl-")) ||
	       !strncmp(name, "libc.musl-", strlen("libc.musl-"));
}

/* A program without a dynamic linker has its libc in itself. */
static bool is_static(const struct process_maps *maps)
{
	size_t at = 0;
	struct statics statics;

	while (statics_next(maps, &at, &statics)) {
		const char *name = statics_file_name(&statics);

		if (is_musl(name) || !strncmp(name, "ld-", 3) || !strncmp(name, "ld.so", 5))
			return false;
	}
	return true;
}

/* musl's own version is a text of its constants: 1.2.3. */
static void version_parse(const char *text, size_t bytes, char version[ALLOCATOR_VERSION])
{
	for (const char *at = text; at < text + bytes; at += strlen(at) + 1) {
		unsigned int major, minor, patch;
		int used = 0;

		if (sscanf(at, "%3u.%3u.%3u%n", &major, &minor, &patch, &used) != 3 || at[used])
			continue;
		snprintf(version, ALLOCATOR_VERSION, "%u.%u.%u", major, minor, patch);
		return;
	}
}

static void version_read(pid_t pid, const struct statics *statics, char version[ALLOCATOR_VERSION])
{
	size_t bytes;
	char *text;

	if (statics_constants(pid, statics->file, STATICS_TEXT, &text, &bytes))
		return;
	version_parse(text, bytes, version);
	free(text);
}

/* A library whose context was not found: mallocng takes its first area from the break. */
static int not_found(const struct process_maps *maps, const char *version)
{
	for (size_t i = 0; i < maps->count; i++)
		if (!strcmp(maps->entries[i].path, "[heap]"))
			return error_set(-ENOTSUP,
					 "the heap of musl %s is not laid out as that of 1.2.1 and "
					 "later",
					 version);
	return -ENODATA;
}

static int context_find(struct musl *musl, const struct process_maps *maps,
			char version[ALLOCATOR_VERSION])
{
	bool alone = is_static(maps), has_library = false;
	struct statics statics;
	size_t at = 0;
	int err = 0;

	while (!err && statics_next(maps, &at, &statics)) {
		bool is_library = is_musl(statics_file_name(&statics));

		if (!alone && !is_library)
			continue;
		has_library |= is_library;
		if (is_library && !version[0])
			version_read(space_pid(musl->space), &statics, version);
		err = statics_search(musl->space, &statics, context_look, musl);
	}
	if (err)
		return err < 0 ? err : 0;
	return has_library ? not_found(maps, version) : -ENOENT;
}

static void musl_close(void *state)
{
	struct musl *musl = state;

	reader_free(musl->reader);
	space_close(musl->space);
	free(musl);
}

static int musl_open(void **state, struct space *space, const struct process_maps *maps,
		     char version[ALLOCATOR_VERSION])
{
	struct musl *musl = calloc(1, sizeof(*musl));
	int err = musl ? reader_new(&musl->reader, space) : -ENOMEM;

	if (err) {
		free(musl);
		return err;
	}
	version[0] = '\0';
	musl->space = space_share(space);
	err = context_find(musl, maps, version);
	if (err) {
		musl_close(musl);
		return err;
	}
	if (!version[0])
		strcpy(version, "mallocng");
	*state = musl;
	return 0;
}

/* --- groups ----------------------------------------------------------------------------------- */

static int extent_add(struct musl_walk *walk, const struct musl_extent *extent)
{
	int err = ARRAY_GROW(walk->extents, walk->capacity, walk->count);

	if (!err)
		walk->extents[walk->count++] = *extent;
	return err;
}

/* 1: the bytes of a meta describe a group; 0: they are free; -EAGAIN: inconsistent. */
static int meta_parse(const uint8_t *bytes, struct musl_extent *out)
{
	uint64_t group = u64_at(bytes + 16), bits = u64_at(bytes + 32), room;
	uint32_t last = bits & 31, class = bits >> 6 & 63;
	uint64_t mapped = (bits >> 12) * 4096;

	*out = (struct musl_extent){.address = group, .count = last + 1};
	if (!group)
		return 0;
	if (group % UNIT || group >> 47 || mapped >> 47 ||
	    (class >= CLASSES && (class != CLASS_ALONE || last || !mapped)))
		return -EAGAIN;
	if (!last && mapped) {
		out->slot_bytes = mapped - UNIT;
		out->has_class = class < CLASSES && out->slot_bytes >= UNIT * class_units[class];
	} else {
		out->slot_bytes = (uint64_t)UNIT * class_units[class];
		out->has_class = 1;
	}
	room = UNIT + out->count * out->slot_bytes;
	out->end = group + (mapped ? mapped : room);
	out->free = (u32_at(bytes + 24) | u32_at(bytes + 28)) & (uint32_t)((2ull << last) - 1);
	return mapped && mapped < room ? -EAGAIN : 1;
}

/* Adds the group of a meta. A group that begins or ends just now is looked at again. */
static int meta_read(struct musl_walk *walk, uint64_t meta)
{
	struct malloc_reader *reader = walk->musl->reader;
	int err = -EAGAIN;

	for (int try = 0; try < TRIES; try++) {
		struct musl_extent extent = {0};
		uint8_t bytes[META_BYTES];
		uint64_t named;

		err = reader_read(reader, meta, bytes, sizeof(bytes), try > 0);
		err = err ?: meta_parse(bytes, &extent);
		if (!err)
			return 0;
		if (err > 0) {
			err = reader_read(reader, extent.address, &named, sizeof(named), try > 0);
			/* What is swapped out cannot contradict. */
			if (err == -ENODATA || (!err && named == meta))
				return extent_add(walk, &extent);
			err = err ?: -EAGAIN;
		}
		if (space_is_fatal(err))
			return err;
	}
	walk->runs.totals->cut++;
	return 0;
}

static int areas_read(struct musl_walk *walk)
{
	struct malloc_reader *reader = walk->musl->reader;
	uint64_t area = walk->context.first_area, next = 0;

	for (; area; area = next) {
		int err = area_check(reader, area, walk->context.secret, &next);

		if (space_is_fatal(err))
			return err;
		if (err || !walk->areas_left--) {
			walk->runs.totals->cut++;
			return 0;
		}
		if (interrupt_pending())
			return error_set(-EINTR, "the walk of musl's heap was ended by a signal");
		err = extent_add(walk, &(struct musl_extent){area, area + AREA_BYTES, 0, 0, 0, 0});
		for (uint32_t i = 0; i < AREA_METAS && !err; i++)
			err = meta_read(walk, area + AREA_HEADER + (uint64_t)i * META_BYTES);
		if (err)
			return err;
	}
	return 0;
}

/* Where the block of a slot begins: what malloc() returned. */
static uint64_t musl_returned(void *state, uint64_t slot, uint64_t slot_bytes)
{
	const struct musl *musl = state;
	uint8_t header[4]; /* in front of the slot */
	uint64_t offset;

	if (reader_read(musl->reader, slot - 4, header, sizeof(header), 0))
		return slot;
	offset = (header[2] | (uint64_t)header[3] << 8) * UNIT;
	return header[1] >> 5 == 7 && offset < slot_bytes ? slot + offset : slot;
}

static int slot_put(struct musl_walk *walk, uint64_t slot, uint64_t bytes)
{
	uint64_t start = bytes > LARGE_BYTES ? musl_returned(walk->musl, slot, bytes) : slot;

	return runs_put(&walk->runs, slot, start - slot, 1, ALLOCATOR_METADATA)
		       ?: runs_put(&walk->runs, start, slot + bytes - start, 1, ALLOCATOR_USED);
}

static int extent_put(struct musl_walk *walk, unsigned int depth);

/* The groups within a slot, and what is left of it. */
static int nested_put(struct musl_walk *walk, uint64_t slot, uint64_t end, unsigned int depth)
{
	int stop = 0;

	while (!stop && walk->next < walk->count && walk->extents[walk->next].address < end) {
		const struct musl_extent *extent = &walk->extents[walk->next];

		if (extent->address < slot || extent->end > end || depth == NESTED_MAX) {
			walk->runs.totals->cut++;
			walk->next++;
			continue;
		}
		stop = runs_put(&walk->runs, slot, extent->address - slot, 1, ALLOCATOR_METADATA);
		slot = extent->end;
		stop = stop ?: extent_put(walk, depth + 1);
	}
	return stop ?: runs_put(&walk->runs, slot, end - slot, 1, ALLOCATOR_METADATA);
}

static void class_count(struct musl_walk *walk, const struct musl_extent *extent, uint32_t used)
{
	struct allocator_class *class =
		extent->has_class ? runs_class(walk->runs.totals, extent->slot_bytes) : NULL;

	if (!class)
		return;
	class->used += used;
	class->free += (uint32_t)__builtin_popcount(extent->free);
	class->slabs++;
	class->slab_bytes += extent->end - extent->address;
}

/* The next extent, with those in its slots. */
static int extent_put(struct musl_walk *walk, unsigned int depth)
{
	struct musl_extent extent = walk->extents[walk->next++];
	uint64_t slot = extent.address + UNIT;
	struct runs *runs = &walk->runs;
	uint32_t used = 0;

	if (!extent.slot_bytes)
		return runs_put(runs, extent.address, AREA_BYTES, 1, ALLOCATOR_METADATA);
	int stop = runs_put(runs, extent.address, UNIT, 1, ALLOCATOR_METADATA);
	for (uint32_t i = 0; i < extent.count && !stop; i++, slot += extent.slot_bytes) {
		uint64_t end = slot + extent.slot_bytes;

		if (walk->next < walk->count && walk->extents[walk->next].address < end) {
			stop = nested_put(walk, slot, end, depth);
		} else if (extent.free >> i & 1) {
			stop = runs_put(runs, slot, extent.slot_bytes, 1, ALLOCATOR_FREE);
		} else {
			used++;
			stop = slot_put(walk, slot, extent.slot_bytes);
		}
	}
	class_count(walk, &extent, used);
	return stop ?: runs_put(runs, slot, extent.end - slot, 1, ALLOCATOR_FREE);
}

static int extents_put(struct musl_walk *walk)
{
	int stop = 0;

	SORT_BY(walk->extents, walk->count, address);
	while (walk->next < walk->count && !stop) {
		if (walk->next % ASKED_GROUPS == 0 && interrupt_pending())
			return error_set(-EINTR, "the walk of musl's heap was ended by a signal");
		stop = extent_put(walk, 0);
	}
	return stop ?: runs_end(&walk->runs);
}

static int musl_walk(void *state, const struct process_maps *maps, allocator_run_fn visit,
		     void *context, struct allocator_totals *totals)
{
	struct musl *musl = state;
	struct musl_walk walk = {.musl = musl,
				 .runs = {.visit = visit, .context = context, .totals = totals},
				 .areas_left = areas_limit(space_pid(musl->space))};
	uint64_t swapped = reader_swapped(musl->reader);
	uint8_t bytes[CONTEXT_BYTES];

	(void)maps;
	reader_clear(musl->reader);
	int err = reader_read(musl->reader, musl->context, bytes, sizeof(bytes), 0);
	if (err == -EFAULT || err == -ENODATA || (!err && !context_parse(bytes, &walk.context)))
		err = error_set(-ENOTSUP, "the variables of musl's malloc cannot be read any more");
	err = err ?: areas_read(&walk) ?: extents_put(&walk);
	totals->swapped = reader_swapped(musl->reader) - swapped;
	free(walk.extents);
	return err;
}

static bool musl_has_variable(const void *state, uint64_t start, uint64_t end)
{
	const struct musl *musl = state;

	return musl->context >= start && musl->context < end;
}

const struct allocator_type musl_allocator = {.name = "musl",
					      .open = musl_open,
					      .close = musl_close,
					      .walk = musl_walk,
					      .has_variable = musl_has_variable,
					      .returned = musl_returned,
					      .has_classes = true};
