/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a process has mapped, as far as events report it: ranges that do not overlap,
 * each with the stack that mapped it. Reserved memory (PROT_NONE) is stored but not counted, so
 * that its later use can be detected.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct account;

#define REGIONS_MAX (1u << 18) /* four times as many as Linux lets a process have by default */

struct region {
	uint64_t start, end;
	uint32_t stack;
	uint32_t accessible : 1; /* 0: only reserved */
	uint32_t inherited : 1;  /* a fork has copied it */
};

/* Zero-initialise except for account; regions_free() releases. */
struct regions {
	struct region *items; /* sorted */
	size_t count, capacity;
	struct account *account; /* borrowed; NULL: none */
};

void regions_free(struct regions *regions);
/* Copies the regions. out is empty and may have an account. 0, -ENOMEM, -EDQUOT. */
int regions_copy(struct regions *out, const struct regions *from);
/*
 * Sets the range to this region, replacing whatever was there; start < end. 0; -ENOSPC: more than
 * REGIONS_MAX, nothing has changed; -EDQUOT, -ENOMEM likewise.
 */
int regions_set(struct regions *regions, const struct region *region);
/*
 * Removes the range. Errors as for regions_set(), because removing the middle of a region leaves
 * two.
 */
int regions_clear(struct regions *regions, uint64_t start, uint64_t end);
/*
 * Changes the protection of the range. Known parts that were only reserved become accessible and
 * get this region's stack, or the reverse. Unknown parts are not added. Errors as for
 * regions_set().
 */
int regions_protect(struct regions *regions, const struct region *region);
/* The region that contains the address; NULL: none. Borrowed until the next change. */
const struct region *regions_find(const struct regions *regions, uint64_t address);
