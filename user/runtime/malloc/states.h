/* SPDX-License-Identifier: Apache-2.0 */
/* Whether blocks that malloc() returned are still allocated. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/malloc/glibc.h"

enum glibc_state {
	GLIBC_STATE_UNKNOWN,   /* could not be read, or two looks differ */
	GLIBC_STATE_ALLOCATED, /* a block that begins here is allocated: this one, or a later one */
	GLIBC_STATE_FREE,      /* no block that begins here is allocated */
};

/*
 * States of addresses that malloc() returned, in any order. The process runs on, so a block counts
 * as free only if two looks agree. It reads all heaps, so ask for many at once. 0; -ESRCH; -EPERM;
 * -ENOTSUP (error_set); -ENOMEM: states are then undefined.
 */
int glibc_states(struct glibc *glibc, const uint64_t *addresses, size_t count, uint8_t *states);
