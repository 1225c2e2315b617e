/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process that is traced in windows has beside its table of blocks: the windows, what is
 * known of the blocks seen in them, and how many blocks of each kind and size class the heap holds.
 * Included by process_tables.h only.
 *
 * Blocks of pymalloc's pools enter the table in windows only. A walk within the window must show
 * such a block, or it is dropped at the window's end, since later its address may hold another one.
 * From then on it stays as long as every walk shows the same kind and content at its address.
 * Blocks that malloc serves are traced all the time, as in census mode, or with
 * EVENT_MODE_LARGE_WINDOWS like those of pools. Extension modules' blocks are traced all the time.
 *
 * Between windows there may be records of pools that are taken into use, which are few. They say
 * who allocated when no window was open.
 *
 * Where Python's layer is not traced, the windows are those of the native layer. Its records say
 * for certain that a block has been allocated. From then on it stays as long as every walk of
 * malloc's heap shows an allocated chunk of the same size at its address (census.c).
 */
#pragma once

#include <stdbool.h>

#include "trace/blocks/blocks.h"
#include "trace/blocks/chunk_table.h"
#include "trace/blocks/deaths.h"
#include "trace/blocks/fingerprints.h"
#include "trace/blocks/frees.h"
#include "trace/blocks/kind_counts.h"
#include "trace/blocks/pool_openers.h"
#include "trace/blocks/sampled_blocks.h"
#include "util/id_map.h"

/* When there are as many, two neighbours each become one. */
#define WINDOWS_MAX 8192u

struct trace_window {
	uint64_t start_ns, end_ns; /* end_ns 0: it is open */
	uint64_t length_ns;        /* of all windows that it stands for */
	uint64_t idle_ns; /* of that: no thread ran, or waited for a processor; 0: not known */
};

/* What a block's fingerprint has as its cohort. 0: that of the next walk. */
#define COHORT_OLD   1u /* older than the trace */
#define COHORT_FIRST 2u
/*
 * When there are as many, the older half are joined in pairs. Of the newest ones each is a walk, so
 * that a snapshot may divide blocks by age as it needs.
 */
#define COHORT_MAX 48u

struct trace_windows {
	struct sampled_blocks sampled_blocks;
	struct deaths deaths;
	struct frees frees; /* of the native layer */
	struct fingerprints fingerprints;
	/* malloc's: all for the native layer; of more than EVENT_SMALL_BYTES for large_windowed */
	struct chunk_table chunks;
	uint64_t chunks_old; /* as many were older than the trace at the first walk */
	/* that of blocks which the next walk shows first, 0: none yet; when each began */
	uint32_t cohort;
	uint64_t *cohorts_ns; /* of COHORT_MAX + 1; NULL: no walk yet, or there is no memory */
	size_t cohorts_capacity;
	struct id_map pools; /* address of a pool -> number of sampled blocks in it */
	/* addresses that were added in the open window; no longer all of them are sampled blocks */
	uint64_t *fresh;
	size_t fresh_count, fresh_capacity;
	size_t last_count; /* of fresh: between windows, those of the last one */
	struct trace_window *items;
	size_t count, capacity;
	struct kind_counts heap; /* of the last complete walk */
	struct kind_counts walk; /* of the one in progress */
	struct pool_openers openers;
	/* blocks of pools that windows have shown, alive or not, by size class; kind: the stack */
	struct kind_counts made;
	struct taken_counts taken, taken_walk; /* as heap and walk, of blocks in pools of openers */
	struct account *account;
	uint64_t cleared_ns;  /* when the table was emptied last; 0: never */
	uint64_t malloc_used; /* allocated blocks of malloc's; 0: not known */
	uint64_t seen;        /* blocks seen in windows */
	uint64_t changed;     /* of these: another block was at the address */
	uint64_t unchecked;   /* no walk has shown them in their window */
	uint64_t dropped;     /* there was no memory for them, or too many */
	uint32_t follows;     /* of the block that is being added, as in struct sampled_block */
	int open;
};

static inline uint64_t state_cohort_ns(const struct trace_windows *windows, uint32_t cohort)
{
	return windows->cohorts_ns ? windows->cohorts_ns[cohort] : 0;
}

struct event_alloc;
struct event_census_kinds;
struct event_window;
struct process_state;
struct builder;

/* Since when blocks count as new: the trace began, or the table was emptied. */
uint64_t state_windows_since_ns(const struct process_state *process);
/* EVENT_WINDOW. 0, -EBADMSG, -ENOMEM, -EDQUOT. */
int state_window(struct process_state *process, const struct event_window *event);
/*
 * The mode is now EVENT_MODE_WINDOWS: begins a window at start_ns, or when the table was emptied
 * after that, in which every block of the table was seen. 0; -ENOMEM, -EDQUOT.
 */
int state_windows_begin(struct process_state *process, uint64_t start_ns);
/*
 * From here on blocks of malloc's are traced in windows only: those of the table have been seen for
 * certain, and stay as long as heap walks show them. 0; -ENOMEM, -EDQUOT.
 */
int state_windows_large_begin(struct process_state *process);
/*
 * Is this new block not to be kept, because it was allocated between windows? If so, what was at
 * its address is dropped.
 */
int state_window_skips(struct process_state *process, const struct block *block);
/* Is a block like this one seen in windows only? */
bool state_window_has(const struct process_state *process, const struct block *block);
/* The block has been added to the table. Without memory it is removed again, and counted. */
void state_window_sight(struct process_state *process, const struct block *block);
/* The block has been removed from the table. */
void state_window_gone(struct process_state *process, const struct block *block);
/* A pool was taken into use. Without memory it is not noted. */
void state_window_pool_taken(struct process_state *process, const struct event_alloc *event);
/* An object begins to live. block: the address of its block; 0: it is not known. */
void state_window_reuse(struct process_state *process, const struct event_alloc *event,
			uint64_t block);
/*
 * The allocator has given the address of a block of the table to another one, in a window. Would
 * looks between windows have noticed? The first recheck of the new block says so
 * (state_window_shown()).
 */
void state_window_reused(struct process_state *process, enum event_layer layer,
			 const struct block *block);
/* A look has shown a block that was seen for the first time. */
void state_window_shown(struct process_state *process, struct sampled_block *sampled_block);
/*
 * A look has shown this at the address of a sampled block; gone: it is not the block that was seen.
 * If it is another one than looks have shown before, the block is dropped.
 */
void state_window_rechecked(struct process_state *process, struct sampled_block *sampled_block,
			    int gone, const struct event_census_kind *kind);
/* Do walks of malloc's heap count this block, which was seen? */
bool state_window_is_chunk(const struct process_state *process,
			   const struct sampled_block *sampled_block, const struct block *block);
/* The kind and the size class of a block that was seen: what heap walks count it by. */
void state_window_place(const struct process_state *process,
			const struct sampled_block *sampled_block, const struct block *block,
			uint32_t *kind, uint32_t *class_bytes);
/* The block of the table that was seen; NULL: an object whose block is not known. */
const struct block *state_window_block(const struct process_state *process,
				       const struct sampled_block *sampled_block);
/* The block of the table that the allocator has at an address; NULL: none. */
const struct block *state_window_block_at(const struct process_state *process, uint64_t address);
/* The pool that contains an address; 0: the size of pools is not known. */
uint64_t state_window_pool(const struct process_state *process, uint64_t address);
/* 0; -ENOMEM, -EDQUOT: nothing is known of the address then. */
int state_sampled_block_add(struct process_state *process,
			    const struct sampled_block *sampled_block);
void state_sampled_block_remove(struct process_state *process, uint64_t address);
/* Removes what was seen at an address: the block there, if it is known, or the object. */
void state_window_drop(struct process_state *process, uint64_t address);
/* Is it the last block of a thread, which may not have taken or filled it yet? */
int state_window_in_progress(const struct process_state *process, uint64_t address);
/*
 * The walks (windows.c): one begins; counts what it has found in a pool; has ended, at
 * time_ns, and what it counted is from now on the heap's, or is dropped unless complete.
 */
void state_windows_walk(struct process_state *process);
void state_windows_count(struct process_state *process, const struct event_census_kinds *event);
void state_windows_walked(struct process_state *process, int complete, int baseline,
			  uint64_t time_ns);
/* A pool was read without a walk. */
void state_windows_recheck(struct process_state *process, const struct event_census_kinds *event);
/* The allocator has given the address to another block. */
void state_windows_another(struct process_state *process, uint64_t address);
/* The cohort of what the next walk shows first. */
uint32_t state_windows_cohort_now(struct process_state *process);
/* The cohort of the block at an address; 0: no walk has shown it. */
uint32_t state_windows_cohort(const struct process_state *process, uint64_t address);

/* Copies to an empty one. 0; -ENOMEM, -EDQUOT. */
int state_windows_copy(struct trace_windows *out, const struct trace_windows *from);
/* Drops the blocks that were seen and the windows; an open one begins anew at time_ns. */
void state_windows_clear(struct process_state *process, uint64_t time_ns);
void state_windows_account(struct trace_windows *windows, struct account *account);
void state_windows_free(struct trace_windows *windows);
