/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each stack has allocated since the table began: the records of allocations are there in any
 * case, so this costs the target nothing. Included by process_tables.h only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "snapshot/snapshot.h"
#include "trace/blocks/blocks.h"

/* Counts are multiples of 1 / ACTIVITY_UNIT, because a sampled block stands for several. */
#define ACTIVITY_UNIT 256u

/* Of the blocks of one stack, domain and layer. With sampling, estimates. */
struct activity {
	uint64_t units, bytes; /* allocated: blocks * ACTIVITY_UNIT, bytes */
	uint32_t stack, domain;
	uint32_t next; /* 1 + index of another one of the same stack; 0: none */
	uint32_t layer;
	uint32_t freed;      /* 1 + index of the first of its lifetimes; 0: none */
	uint32_t window_row; /* 1 + index in window_allocs.rows; 0: none */
	uint32_t changed;    /* activities.telling when it last changed */
	uint64_t live_units, live_bytes;
	uint64_t peak_units, peak_bytes; /* alive at the peak of that number (tables.c) */
	uint64_t peak;
};

/* Those of them that were freed after such a time. */
struct activity_freed {
	uint64_t units, bytes;
	uint32_t lifetime; /* enum snapshot_lifetime */
	uint32_t next;     /* 1 + index; 0: none */
};

struct activities {
	struct activity *items;
	size_t count, capacity;
	struct activity_freed *freed;
	size_t freed_count, freed_capacity;
	uint64_t units, bytes; /* the sums of all */
	uint64_t freed_units, freed_bytes;
	struct {
		uint64_t number, time_ns; /* of the last peak */
	} peaks[EVENT_LAYER_TABLES];
	/* some of Python's frees are not seen: blocks were allocated in census mode */
	int unfreed;
	int unwalked; /* some blocks were allocated in another mode than census */
	/* allocations are missing: there was no memory, or probes were not always on */
	int gap;
	uint64_t since_ns; /* when the counts began, CLOCK_MONOTONIC; 0: with the trace */
	/* of answers to a live view: the number of the next, of the first with all of these or 0 */
	uint32_t telling, reported_first;
};

struct builder;
struct process_state;

/* That of a block's stack and domain, made if it is new. NULL: no memory. Borrowed for now. */
struct activity *state_activity_of(struct process_state *process, enum event_layer layer,
				   const struct block *block);
/* What the block stands for. */
uint64_t state_activity_units(const struct process_state *process, enum event_layer layer,
			      const struct block *block);
/* A block has come to the table, or is gone from it. */
void state_live_change(struct process_state *process, enum event_layer layer,
		       const struct block *block, int gone);
/* The table is emptied, to be filled again. */
void state_live_reset(struct process_state *process, enum event_layer layer);
/* What the table holds now is its peak. */
void state_peak_now(struct process_state *process, enum event_layer layer);
/*
 * Adds blocks of which only the sums are known: two sizes that differ by 1 add up to them. 0;
 * errors of builder_layer().
 */
int state_sums_add(struct builder *builder, uint32_t layer, const struct snapshot_trace *like,
		   uint64_t units, uint64_t bytes);
/* What was alive at the peak. */
void state_peak_of(const struct process_state *process, const struct activity *activity,
		   uint64_t *units, uint64_t *bytes);
/* Such a time for struct block.born_ms. */
uint32_t state_activity_ms(const struct process_state *process, uint64_t time_ns);
/* Counts the allocation of a block. */
void state_activity_count(struct process_state *process, enum event_layer layer,
			  const struct block *block);
/* A block was freed, at time_ns, so many allocations of its thread later (recent_take()). */
void state_activity_free(struct process_state *process, enum event_layer layer,
			 const struct block *block, uint64_t time_ns, uint32_t later);
/* A block is gone. Of Python's in census mode, counts those that did not live to a heap walk. */
void state_activity_gone(struct process_state *process, enum event_layer layer,
			 const struct block *block);
/* Are the counts of a layer complete? */
int state_activity_known(const struct process_state *process, enum snapshot_extras what,
			 enum event_layer layer);
/*
 * Adds what is known of both layers to a snapshot. tracebacks: by stack, the snapshot's. 0; errors
 * of builder_layer().
 */
int state_activities_add(const struct process_state *process, const uint32_t *tracebacks,
			 struct builder *builder);
/* Drops the counts, and begins anew. */
void state_activity_clear(struct process_state *process, uint64_t time_ns);
