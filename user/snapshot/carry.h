/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of one snapshot on their way into another: names and tracebacks go over when a trace first
 * needs them.
 */
#ifndef TRACER_SNAPSHOT_CARRY_H
#define TRACER_SNAPSHOT_CARRY_H

#include "snapshot/app.h"
#include "snapshot/builder.h"

struct carry {
	const struct snapshot *from; /* borrowed, as is the builder */
	struct builder *to;
	uint32_t *strings, *tracebacks; /* index in from -> in to, UINT32_MAX: not there yet */
	struct snapshot_frame *frames;  /* of one traceback */
	struct app_run *
		/*
		 * borrowed; tracebacks begin at the application's most recent frame. NULL: as they
		 * are
		 */
		app;
};

/* 0, -ENOMEM */
int carry_begin(struct carry *carry, const struct snapshot *from, struct builder *to);
/* Makes trace->traceback, an index in from, the one in to. 0, -ENOMEM, -EOVERFLOW. */
int carry_traceback(struct carry *carry, struct snapshot_trace *trace);
void carry_end(struct carry *carry); /* after a failed carry_begin(), too */

#endif
