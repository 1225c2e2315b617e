/* SPDX-License-Identifier: Apache-2.0 */
/* How much of what processes have in memory a snapshot accounts for. */
#ifndef TRACER_STATS_EXPLAINED_H
#define TRACER_STATS_EXPLAINED_H

#include <stddef.h>
#include <stdint.h>

#include "snapshot/snapshot.h"

struct explained {
	uint64_t rss_bytes; /* of the processes together; pages that they share count for each */
	uint64_t
		/*
		 * of that, what live blocks are: of each process the layer that has most of it, at
		 * most all
		 */
		bytes;
	size_t processes; /* of which the former is known */
};

/* 1; 0: it is known of no process, or there is no memory. */
int explained_read(const struct snapshot *snapshot, struct explained *out);

#endif
