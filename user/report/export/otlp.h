/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots as OTLP profiles (otlp.proto), for OpenTelemetry's collector and what understands it.
 *
 * A process is a ResourceProfiles, a layer of it a ScopeProfiles: the scope is "tracer", and its
 * attribute tracer.layer is python, native, mmap or, of blocks that are older than a trace with
 * windows, older. Layers are never added up: memory of one lies inside blocks of the next. A layer
 * has the profiles inuse_space and inuse_objects, and alloc_space and alloc_objects where it is
 * known what was allocated since the trace began. The process's own first layer comes first, with
 * inuse_space, which readers show if nothing else is chosen.
 *
 * A sample is a whole stack with one value, which is not 0. Estimates are rounded so that the sums
 * by line, of each process, are those of `tracer report`. What a snapshot knows besides, such as
 * freed blocks, lifetimes, threads and the peak, is left out: there are no conventions for it.
 * docs/snapshots.md lists the attributes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "snapshot/snapshot.h"
#include "util/buffer.h"

struct otlp_attribute {
	const char *key, *value;
};

struct otlp_opts {
	/*
	 * Attributes of each resource besides those that the snapshot tells, which they replace; of
	 * several with the same key the first counts.
	 */
	const struct otlp_attribute *resource;
	size_t resource_count;
	/* that the profiles of what is alive cover; 0: they are of one moment */
	uint64_t duration_ns;
};

/*
 * Appends one ExportProfilesServiceRequest, which is a ProfilesData on the wire, too. All texts in
 * it are valid UTF-8 (utf8_escape()). opts NULL: without attributes and duration. 0; -ENOMEM;
 * -EOVERFLOW: a sum exceeds INT64_MAX, or a table INT32_MAX entries. out is as it was on failure.
 */
int otlp_write(const struct snapshot *snapshot, const struct otlp_opts *opts, struct buffer *out);
/*
 * Reads an ExportProfilesServiceResponse: how many profiles the receiver has refused, and why, cut
 * to capacity bytes with NUL; it may be any text. 0; -EBADMSG: it is none.
 */
int otlp_answer_read(const struct buffer *answer, long long *rejected, char *why, size_t capacity);
