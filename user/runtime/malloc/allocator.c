/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/allocator.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proc/memory.h"
#include "runtime/malloc/glibc_allocator.h"
#include "runtime/malloc/jemalloc.h"
#include "runtime/malloc/mimalloc.h"
#include "runtime/malloc/mimalloc3.h"
#include "runtime/malloc/musl.h"
#include "runtime/malloc/statics.h"
#include "runtime/malloc/tcmalloc.h"
#include "util/array.h"
#include "util/error.h"

/* A new one is added here, and nowhere else. The first does not replace malloc. */
static const struct allocator_type *const types[] = {&glibc_allocator,    &jemalloc_allocator,
						     &tcmalloc_allocator, &mimalloc3_allocator,
						     &mimalloc_allocator, &musl_allocator};

#define REPLACING 1u /* the first of types that does */

/* Of a process that has it: is it left out, and the others are read? */
static bool is_left_out(const struct allocator_type *type, int err, struct allocators *out)
{
	out->has_unused |= err == -ENODATA;
	if (err == -ENOENT || err == -ENODATA)
		return true;
	if (space_is_fatal(err))
		return false;
	/* One that is not known by one layout is by another. */
	for (size_t i = 0; i < out->count; i++)
		if (!strcmp(out->items[i].type->name, type->name))
			return true;
	if (!out->reason[0])
		snprintf(out->reason, sizeof(out->reason), "%s: %s", type->name, error_reason(err));
	return true;
}

/* It was refused by one layout, and is read by another. */
static void reason_end(struct allocators *out, const char *name)
{
	size_t length = strlen(name);

	if (!strncmp(out->reason, name, length) && out->reason[length] == ':')
		out->reason[0] = '\0';
}

static int types_open(struct allocators *out, struct space *space, const struct process_maps *maps,
		      size_t first)
{
	*out = (struct allocators){.pid = space_pid(space)};
	for (size_t i = first; i < ARRAY_SIZE(types) && out->count < ALLOCATORS_MAX; i++) {
		struct allocator *item = &out->items[out->count];

		item->type = types[i];
		error_clear();
		int err = types[i]->open(&item->state, space, maps, item->version);
		if (!err) {
			reason_end(out, types[i]->name);
			out->count++;
		} else if (!is_left_out(types[i], err, out)) {
			allocators_close(out);
			return err;
		}
	}
	return 0;
}

int allocators_open(struct allocators *out, struct space *space, const struct process_maps *maps)
{
	return types_open(out, space, maps, REPLACING);
}

int allocators_open_all(struct allocators *out, struct space *space,
			const struct process_maps *maps)
{
	return types_open(out, space, maps, 0);
}

bool allocators_have(const struct allocators *allocators, const struct process_maps *maps,
		     const struct process_map *file)
{
	struct statics statics;
	size_t at = 0;

	while (statics_next(maps, &at, &statics)) {
		if (!statics_is_of(&statics, file))
			continue;
		for (size_t i = 0; i < allocators->count; i++) {
			const struct allocator *item = &allocators->items[i];

			if (item->type->has_variable(item->state, statics.start, statics.end))
				return true;
		}
	}
	return false;
}

void allocators_close(struct allocators *allocators)
{
	for (size_t i = 0; i < allocators->count; i++)
		allocators->items[i].type->close(allocators->items[i].state);
	allocators->count = 0;
}

struct walk_sums {
	allocator_run_fn visit;
	void *context;
	struct allocator_totals *totals;
	uint64_t runs;
};

static int run_add(const struct allocator_run *run, void *context)
{
	struct walk_sums *sums = context;

	if (sums->runs++ == ALLOCATOR_RUNS_MAX)
		return error_set(-ENOTSUP, "it has more than %u runs of blocks",
				 ALLOCATOR_RUNS_MAX);
	sums->totals->bytes[run->kind] += run->block_bytes * run->count;
	sums->totals->counts[run->kind] += run->count;
	return sums->visit ? sums->visit(run, sums->context) : 0;
}

int allocator_walk(const struct allocator *allocator, const struct process_maps *maps,
		   allocator_run_fn visit, void *context, struct allocator_totals *out)
{
	*out = (struct allocator_totals){0};
	struct walk_sums sums = {visit, context, out, 0};

	return allocator->type->walk(allocator->state, maps, run_add, &sums, out);
}
