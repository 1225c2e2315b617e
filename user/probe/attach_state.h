/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct attach, shared by attach*.c only. */
#ifndef TRACER_PROBE_ATTACH_STATE_H
#define TRACER_PROBE_ATTACH_STATE_H

#include "probe/alloc.skel.h"
#include "probe/attach.h"
#include "probe/links.h"

struct attach {
	struct alloc_bpf *skeleton;
	struct stream *stream;
	struct links links;
	int empty; /* as in struct attach_opts */
};

#endif
