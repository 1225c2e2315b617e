/* SPDX-License-Identifier: Apache-2.0 */
/* Small snapshots for tests. */
#ifndef TEST_SNAPSHOTS_H
#define TEST_SNAPSHOTS_H

#include <string.h>

#include "snapshot/builder.h"

#define FRAME_NATIVE (1u << 31)

struct frame_text {
	const char *filename, *function;
	uint32_t line; /* | FRAME_NATIVE */
};

/*
 * Adds count blocks. The frames are most recent first; one without a file name ends them. 0 or
 * -errno.
 */
static inline int snapshot_add(struct builder *builder, const struct frame_text *frames,
			       uint32_t total, uint32_t domain, uint64_t bytes, uint64_t count)
{
	struct snapshot_frame ids[EVENT_MAX_FRAMES];
	struct strings *strings = builder->snapshot->strings;
	struct snapshot_trace trace = {.domain = domain, .bytes = bytes, .count = count};
	uint32_t nframe = 0;
	int err = 0;

	for (; !err && frames[nframe].filename; nframe++) {
		const struct frame_text *frame = &frames[nframe];

		ids[nframe] =
			(struct snapshot_frame){.line = frame->line, .native = frame->line >> 31};
		err = strings_intern(strings, frame->filename, strlen(frame->filename),
				     &ids[nframe].filename);
		if (!err)
			err = strings_intern(strings, frame->function, strlen(frame->function),
					     &ids[nframe].function);
	}
	if (!err)
		err = builder_traceback(builder, ids, nframe, total > nframe ? total : nframe,
					&trace.traceback);
	return err ? err : builder_trace(builder, &trace);
}

#endif
