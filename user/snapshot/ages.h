/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How old blocks are when a snapshot shows them: the time from their allocation to the moment of
 * their process, of CLOCK_MONOTONIC. Of a block that was reallocated, from that on.
 *
 * A snapshot has ages only if its trace was asked for them (snapshot_meta.ages): its traces are
 * then also distinguished by age, and there are many more. So ages are rounded: to 10 ms, and to
 * a 32nd of the power of two below them. How far they may be wrong otherwise is in
 * snapshot_meta.ages_error_ns.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "snapshot/snapshot.h"

#define AGE_UNKNOWN 0u
#define AGE_BEFORE  UINT32_MAX /* older than the trace of its process */
#define AGE_UNIT_NS 1000000ull

/* The most that an age is wrong by rounding, as a part of it; below that, AGE_STEP_MS / 2. */
#define AGE_ROUNDING (1.0 / 64)
#define AGE_STEP_MS  10u

/*
 * snapshot_trace.age of blocks of that age: never AGE_UNKNOWN or AGE_BEFORE. No block is older than
 * most_ns, rounded or not.
 */
uint32_t ages_round(uint64_t age_ns, uint64_t most_ns);
/* The same with half as many steps, for what is drawn anew every second. */
uint32_t ages_coarse(uint64_t age_ns, uint64_t most_ns);

/* Which ages are wanted. Both limits are within. */
struct ages {
	uint64_t least_ns, most_ns; /* most_ns UINT64_MAX: no limit */
	/* when blocks were allocated, CLOCK_REALTIME as it was when the trace began; the same */
	uint64_t from_realtime_ns, until_realtime_ns;
};
#define AGES_ALL                                                                                   \
	{                                                                                          \
		.most_ns = UINT64_MAX, .until_realtime_ns = UINT64_MAX                             \
	}

/* Is not every age wanted? */
bool ages_any(const struct ages *ages);
/*
 * Is an age (snapshot_trace.age) wanted? moment_ns: when blocks had it, CLOCK_REALTIME. Blocks
 * older than the trace are older than all others: they are wanted unless most_ns or
 * from_realtime_ns is given. AGE_UNKNOWN is not wanted.
 */
bool ages_want(const struct ages *ages, uint32_t age, uint64_t moment_ns);
/*
 * Drops the blocks whose age is not wanted, and what is not known by age: the layers beside the
 * blocks that are alive. meta.of_ages is then set. 0; -ENODATA (error_set): the snapshot has no
 * ages.
 */
int ages_keep(struct snapshot *snapshot, const struct ages *ages);
