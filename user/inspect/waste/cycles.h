/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cycles: objects that refer to each other, directly or through others of the same cycle, and that
 * only the collector can free. Those with the same types are one entry. References of an object to
 * its type, and of a function to its module's variables, do not make a cycle here. Pure.
 */
#pragma once

#include "inspect/holders/paths.h"

struct cycle {
	uint64_t cycles, count, bytes; /* count: objects */
	uint64_t finalized;            /* objects whose types have __del__, or a finalizer in C */
	/*
	 * Bytes that are freed with its cycles; those of a cycle that another one of the entry
	 * retains count once. In cycles.total: 0.
	 */
	uint64_t retained;
	uint64_t garbage; /* cycles that no root reaches: the collector has not freed them yet */
	uint64_t frozen;  /* the same, after gc.freeze(): no collection frees them */
	uint64_t kept;    /* cycles that are reached through gc.garbage only */
	uint64_t garbage_retained; /* as retained, of the cycles that are garbage or frozen */
	uint32_t example;          /* an object of the largest cycle */
	uint32_t largest;          /* objects of that */
	/* the types of its objects, sorted: [first_type, first_type + type_count) of types */
	uint32_t first_type, type_count;
};

struct cycles {
	struct cycle
		*entries; /* the most bytes of garbage first, then the most that are retained */
	size_t count, capacity;
	uint32_t *types;
	size_t types_used, types_capacity;
	struct cycle total; /* without example and types */
	/* bytes of all objects that only garbage, frozen garbage and gc.garbage hold */
	uint64_t garbage_bytes, frozen_bytes, kept_bytes;
};

/* 0, -ENOMEM. The caller frees with cycles_free(), also after a failure. */
int cycles_find(struct cycles *out, const struct paths *paths, const struct retained *retained);
void cycles_free(struct cycles *cycles);

/*
 * Strongly connected components: part[i] is the number of node i's, of *parts. Edges of node i are
 * at [start[i], start[i + 1]) of out. 0, -ENOMEM.
 */
int components_find(const uint32_t *start, const uint32_t *out, uint32_t count, uint32_t *part,
		    uint32_t *parts);
