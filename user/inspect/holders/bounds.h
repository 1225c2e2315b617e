/* SPDX-License-Identifier: Apache-2.0 */
/* How many entries a container of a heap takes at most. Pure. */
#pragma once

#include "inspect/holders/paths.h"

struct bound {
	uint64_t most, entries; /* entries: now */
};

/*
 * Of a deque its maxlen, of an lru_cache's dictionary its maxsize; else what the object with the
 * container says, in an attribute such as maxsize. 1; 0: there is no bound, or it is not known;
 * -ENOMEM.
 */
int bound_find(const struct paths *paths, uint32_t object, struct bound *out);
