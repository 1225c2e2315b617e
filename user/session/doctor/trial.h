/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests whether tracing works on this machine. Our own child makes a few blocks under an ordinary
 * probe: the programs must load, the probe must be placed, and the ring buffer must report the
 * blocks as they were made.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "attach/links/features.h"

#define TRIAL_BLOCKS 3u
#define TRIAL_BYTES  6000u /* of all blocks */

/* How far the trial got; the fields of later steps are 0. */
struct trial {
	int loaded, placed, seen;
	uint64_t load_ns, place_ns;
	const char *links; /* attach_backend() */
};

/*
 * 0; -EPERM, -ENOSYS and others as features_check(); a refusal of the kernel, as
 * hint_explain(); -ENODATA the events are missing or wrong. With error_set(), and *remedy
 * (NULL: none is known).
 */
int trial_run(const struct features *features, struct trial *out, const char **remedy);
