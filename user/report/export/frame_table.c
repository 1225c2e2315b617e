/* SPDX-License-Identifier: Apache-2.0 */
#include "report/export/frame_table.h"

#include <errno.h>
#include <stdlib.h>

#include "util/sorted.h"

struct numbered {
	struct snapshot_frame frame;
	uint32_t index; /* in snapshot->frames */
};

static int frame_compare(const struct snapshot_frame *a, const struct snapshot_frame *b)
{
	return CMP(a->filename, b->filename)
	       ?: CMP(a->function, b->function)
	       ?: CMP(a->line, b->line);
}

static int numbered_compare(const void *a, const void *b)
{
	return frame_compare(&((const struct numbered *)a)->frame,
			     &((const struct numbered *)b)->frame);
}

int frame_table_make(const struct snapshot *snapshot, struct frame_table *out)
{
	size_t count = snapshot->frame_count;
	struct numbered *sorted = calloc(count + 1, sizeof(*sorted));

	*out = (struct frame_table){.frames = calloc(count + 1, sizeof(*out->frames)),
				    .ids = calloc(count + 1, sizeof(*out->ids))};
	if (!sorted || !out->frames || !out->ids) {
		free(sorted);
		frame_table_free(out);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		sorted[i] = (struct numbered){snapshot->frames[i], (uint32_t)i};
	qsort(sorted, count, sizeof(*sorted), numbered_compare);
	for (size_t i = 0; i < count; i++) {
		if (!i || frame_compare(&sorted[i].frame, &sorted[i - 1].frame))
			out->frames[out->count++] = sorted[i].frame;
		out->ids[sorted[i].index] = (uint32_t)(out->count - 1);
	}
	free(sorted);
	return 0;
}

void frame_table_free(struct frame_table *table)
{
	free(table->frames);
	free(table->ids);
	*table = (struct frame_table){0};
}
