/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does it work on this machine? A child of our own makes a few blocks, under a probe as any other:
 * the programs are loaded, the probe is placed, and the blocks must come out of the ring buffer as
 * they were made.
 */
#ifndef TRACER_ATTACH_TRIAL_H
#define TRACER_ATTACH_TRIAL_H

#include <stddef.h>
#include <stdint.h>

#include "attach/features.h"

#define TRIAL_BLOCKS 3u
#define TRIAL_BYTES  6000u /* of all of them */

/* How far it came; what lies behind that is 0. */
struct trial {
	int loaded, placed, seen;
	uint64_t load_ns, place_ns;
	const char *links; /* attach_backend() */
};

/*
 * 0; -EPERM, -ENOSYS and others as features_check(); what the kernel has refused, as
 * obstacle_explain(); -ENODATA the events did not come, or not as they should. With error_set(),
 * and *remedy (NULL: none is known).
 */
int trial_run(const struct features *features, struct trial *out, const char **remedy);

#endif
