/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The distinct frames of a snapshot, numbered, for formats that refer to frames by number. A
 * snapshot lists the frames of each traceback anew.
 */
#pragma once

#include "snapshot/snapshot.h"

struct frame_table {
	struct snapshot_frame *frames; /* distinct */
	size_t count;
	uint32_t *ids; /* of each of snapshot->frames: its index in frames */
};

int frame_table_make(const struct snapshot *snapshot, struct frame_table *out); /* 0, -ENOMEM */
void frame_table_free(struct frame_table *table);
