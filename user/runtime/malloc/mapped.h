/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that glibc's malloc gave a mapping of their own (of 128 KiB and more). */
#pragma once

#include <stdint.h>

#include "runtime/malloc/glibc.h"

/* A range of addresses that is known to be something else. */
struct glibc_range {
	uint64_t start, end;
};

/* Returns non-zero to stop. */
typedef int (*glibc_mapped_fn)(uint64_t start, uint64_t bytes, void *context);

/*
 * Visits such blocks in order of address. Nothing lists them: each page of anonymous memory is
 * looked at that begins none of the ranges `except` (by address, disjoint), and a header there with
 * a plausible size is taken for one. So compare with glibc->mmaps. Blocks that were aligned by
 * request to less or more than malloc aligns are not found. 0; -ESRCH; -EPERM; -ENOMEM.
 */
int glibc_mapped_walk(struct glibc *glibc, const struct process_maps *maps,
		      const struct glibc_range *except, size_t except_count, glibc_mapped_fn visit,
		      void *context);
/*
 * Whether a block that malloc() returned at this address has such a mapping. 1; 0; -ENODATA: its
 * header is swapped out; -ESRCH; -EPERM.
 */
int glibc_is_mapped(struct glibc *glibc, const struct process_maps *maps, uint64_t address);
