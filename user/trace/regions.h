/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a process has mapped, as far as events have told of it: ranges that do not
 * overlap, each with the traceback that asked for it. What is only reserved (PROT_NONE) is kept, so
 * that the moment at which it becomes memory is known, and does not count.
 */
#ifndef TRACER_TRACE_REGIONS_H
#define TRACER_TRACE_REGIONS_H

#include <stddef.h>
#include <stdint.h>

struct account;

#define REGIONS_MAX (1u << 18) /* four times as many as Linux lets a process have by default */

struct region {
	uint64_t start, end;
	uint32_t traceback;
	uint32_t accessible : 1; /* 0: only reserved */
	uint32_t inherited : 1;  /* a fork has copied it */
};

/* Zero-initialised but for account; regions_free() releases. */
struct regions {
	struct region *items; /* sorted */
	size_t count, room;
	struct account *account; /* borrowed; NULL: none */
};

void regions_free(struct regions *regions);
/*
 * The same regions in a list of their own; out is empty, and may have an account. 0, -ENOMEM,
 * -EDQUOT.
 */
int regions_copy(struct regions *out, const struct regions *from);
/*
 * The range is this from now on, whatever parts of it were; start < end. 0; -ENOSPC it would make
 * more than REGIONS_MAX: nothing has changed; -EDQUOT, -ENOMEM likewise.
 */
int regions_set(struct regions *regions, const struct region *region);
/*
 * Nothing is known of the range any more. As regions_set(): taking the middle out of a region makes
 * two.
 */
int regions_clear(struct regions *regions, uint64_t start, uint64_t end);
/*
 * The protection of the range changed: parts of it that are known and were only reserved are
 * accessible now, and this traceback's; or the reverse. Other parts are left alone. As
 * regions_set().
 */
int regions_protect(struct regions *regions, const struct region *region);
/* The region that holds the address, NULL when none does. Borrowed until the next change. */
const struct region *regions_find(const struct regions *regions, uint64_t address);

#endif
