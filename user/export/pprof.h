/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots as gzip'd pprof profiles (user/export/profile.proto), lossless for PEP 454, read and
 * written.
 *
 * One sample per snapshot_trace: locations most recent first, values {inuse_objects count,
 * inuse_space bytes}, labels: bytes (num, unit bytes: of each block), domain (num), pid (num),
 * total_nframe (num; left away when it is not known). Where mapped memory was followed there are
 * two values more, {mapped_regions count, mapped_space bytes}, and a sample per range of it, whose
 * first two values are 0, as the last two are of the others: pprof shows either layer and never
 * their sum. Of a sample of the blocks (meta.sample_bytes, also the profile's period) the values
 * are what a trace stands for, as pprof has its own heap profiles (snapshot/estimate.h); the number
 * that was sampled follows from them and from bytes. Of several processes, pid is that of the
 * sample's, and three labels more are there: process (num, from 1), comm and container (texts). One
 * Location per distinct {file name, function, line}, one Function per distinct {file name,
 * function}. Everything of snapshot_meta stands in lines "tracer:KEY=VALUE" (pprof_format.h), the
 * first "tracer:snapshot=1", which is how a file of ours is known. The comments are a report's
 * title and what it says of losses, for who reads the profile in pprof.
 */
#ifndef TRACER_EXPORT_PPROF_H
#define TRACER_EXPORT_PPROF_H

#include "base/account.h"
#include "base/infile.h"
#include "base/outfile.h"
#include "snapshot/snapshot.h"

/*
 * Memory for each byte of a file: tracebacks of 128 frames that differ in a few pack to a 250th of
 * what they take.
 */
#define PPROF_RATIO 400u

int pprof_write(const struct snapshot *snapshot, struct outfile *file); /* 0, -errno */
/*
 * From a gzip'd file. 0; -EBADMSG corrupt, truncated, or not ours (error_set says what is wrong or
 * missing); -EFBIG unpacks to more than 4 GiB, or takes more memory than a file of its size can
 * (PPROF_RATIO); -errno. Caller frees with snapshot_free().
 */
int pprof_read(struct infile *file, struct snapshot **out);
/* The same from an unpacked profile in memory. */
int pprof_parse(const unsigned char *profile, size_t bytes, struct snapshot **out);
/* What is made of it is charged to an account; -EFBIG beyond that. */
int pprof_parse_in(struct account *account, const unsigned char *profile, size_t bytes,
		   struct snapshot **out);

#endif
