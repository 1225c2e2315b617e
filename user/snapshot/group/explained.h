/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the resident memory of processes a snapshot accounts for. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "snapshot/snapshot.h"

struct explained {
	uint64_t rss_bytes; /* sum over the processes; shared pages count for each */
	/*
	 * The part of it that is in live blocks: per process, the largest layer, at most its RSS.
	 */
	uint64_t bytes;
	size_t processes; /* processes whose RSS is known */
};

/* 1; 0: the RSS of no process is known, or no memory. */
int explained_read(const struct snapshot *snapshot, struct explained *out);
