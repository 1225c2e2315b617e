/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and differences of pprof profiles, as readers of profiles expect them: samples of the same
 * stack and the same labels add up, and what comes to nothing is left out. Labels that are figures
 * of one snapshot (bytes, standard_error, deviations) are left out, too. Mappings are one if their
 * addresses, file names and build IDs are equal; has_functions and the like are set if they are in
 * all profiles, and the period if it is the same. The result has no comments and none of tracer's
 * own lines: it is no snapshot.
 */
#pragma once

#include <stdint.h>

#include "util/buffer.h"
#include "util/cleanup.h"

#define MERGE_TYPES 64u /* types of values in a result */

struct pprof_merge;

int pprof_merge_new(struct pprof_merge **out);    /* 0, -ENOMEM */
void pprof_merge_free(struct pprof_merge *merge); /* NULL is legal */
DEFINE_CLEANUP(struct pprof_merge *, pprof_merge_free)
/*
 * Adds a gzip'd profile; factor -1: subtracts it. The types of values are those of all profiles;
 * the time is that of the last one added. 0; -EBADMSG: it is no profile; -EFBIG (error_set);
 * -ENOMEM.
 */
int pprof_merge_add(struct pprof_merge *merge, const struct buffer *profile, int factor);
/*
 * Appends the result, gzip'd. type: of the value that a reader shows first. duration_ns replaces
 * that of the last profile; 0: it stays. 0; -ENOENT (error_set): no value has that type, or
 * it is not one of the first two, and 0 everywhere; -ENOMEM.
 */
int pprof_merge_write(struct pprof_merge *merge, const char *type, uint64_t duration_ns,
		      struct buffer *out);
/*
 * Copies a gzip'd profile with all that it has, but another type of the value that is shown first.
 * Errors as those of pprof_merge_add(); -ENOENT as above.
 */
int pprof_show_first(const struct buffer *profile, const char *type, struct buffer *out);
