/* SPDX-License-Identifier: Apache-2.0 */
/* What was seen of a process in windows, before it becomes the input of the estimator. */
#pragma once

#include "snapshot/builder.h"
#include "trace/estimate/ages_split.h"
#include "trace/estimate/newest.h"
#include "trace/estimate/pools_split.h"
#include "trace/estimate/reuse.h"

/* The first strata, before those of the heap's walk. */
enum large {
	LARGE_CERTAIN, /* seen before large blocks were traced in windows: each is known */
	LARGE_OBJECT,
	LARGE_RAW,
	/*
	 * Of at least LARGE_HUGE_BYTES, by powers of two: one of them is as large as thousands of
	 * others, and must not be charged as often as those that windows show stand for.
	 */
	LARGE_HUGE,
	LARGE_STRATA = LARGE_HUGE + 32
};
#define LARGE_HUGE_BYTES     (128u << 10)
#define LARGE_TYPE(stratum)  (1ull << 32 | (stratum))
#define LARGE_CLASS(stratum) (1u << 16 | (stratum)) /* no size class of pools */

enum seen_use {
	SEEN_DONOR,
	SEEN_ALIVE,
	SEEN_DEAD,
};

/* A block that was seen. */
struct seen {
	uint32_t stack, owner, window, kind, class_bytes, cohort; /* owner: as in struct block */
	uint32_t large;    /* enum large; LARGE_STRATA: heap walks count it */
	uint32_t flags;    /* SNAPSHOT_* */
	uint32_t survival; /* 1 + its place in survivals; 0: none */
	enum seen_use use;
	uint64_t bytes;
	uint64_t made_ns, shown_ns; /* as in sampled_blocks.h */
	uint64_t born_ns; /* when it was allocated; of a donor, on average what it stands for */
	double inclusion;
};

struct job {
	const struct process_state *process;
	const uint32_t *tracebacks;
	uint64_t moment_ns;      /* rows are split by the age at that time; 0: they are not */
	bool by_owner;           /* rows are of one thread or task each */
	struct block_ages *ages; /* by sampled block */
	uint64_t *middles_ns;    /* by window: of the time that it stands for */
	uint8_t *shown;          /* by window: it has shown a block that is alive */
	struct seen *seen;
	struct calibrate_survival *survivals;
	struct calibrate_stratum *strata;
	struct calibrate_window *windows;
	struct calibrate_sampled_block *sampled_blocks;
	struct snapshot_trace *rows;
	struct pools_taken *taken;
	size_t sampled_count; /* of sampled_blocks */
	size_t seen_count, survival_count, survival_capacity, stratum_count, row_count, taken_count;
	struct newest newest;
	struct reuse reuse;
	struct id_map row_index;     /* stack, size, flags and owner -> row */
	struct id_map sizes;         /* kind and size class -> the size of all that were seen */
	struct id_map made, alive;   /* place and size class -> blocks seen: all; alive */
	struct id_map shared;        /* row and window -> 1 + place in survivals */
	struct id_map newest_strata; /* kind and size class -> one of the newest cohort */
	struct id_map likes;         /* stacks, kinds and size classes of which there are donors */
	/*
	 * Kinds and size classes in which addresses are reused unnoticed: their cohorts say
	 * nothing, since a block has that of the first one that looked like it.
	 */
	struct id_map blurred;
};
