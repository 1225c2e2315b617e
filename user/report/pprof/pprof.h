/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots as gzip'd pprof profiles (user/report/pprof/profile.proto), lossless for PEP 454, read
 * and written.
 *
 * There is one sample per snapshot_trace: locations most recent first, values {inuse_objects count,
 * inuse_space bytes}, labels bytes (num, unit bytes: the size of each block), domain (num), pid
 * (num), total_nframe (num; absent if unknown). Each further layer adds two values, for example
 * {mapped_regions count, mapped_space bytes} for mapped memory, and its own samples, in which the
 * values of the other layers are 0. So pprof shows each layer, and never their sum. In a sampled
 * trace (meta.sample_bytes) the values are estimates, as in pprof's own
 * heap profiles (snapshot/estimate.h); the sampled number follows from them and from bytes. In a
 * trace with windows (snapshot/estimate/calibrate.h) the values are estimates, too, with two more
 * labels: deviations (string, pprof_format.h) and standard_error (num, unit bytes; of the bytes).
 * What is older than the trace has two values of its own, older_objects count and older_space
 * bytes. So has what was allocated, alive or not: alloc_objects count and alloc_space bytes, with
 * the mean size as bytes and the label allocated (num, 1); in a sampled trace they are estimates
 * already. With several processes, pid is that of the sample's process, and there are three more
 * labels: process (num, from 1), comm and container (strings). There is one Mapping per binary that
 * native frames are in, with its build ID (pprof_format.h). has_functions and the like hold for all
 * locations of a mapping. There is one Location per distinct {file name, function, line, mapping},
 * with the functions inlined there as its first lines, and one Function per distinct {file name,
 * function}. Such a location stands for all addresses of its line, and its address is 0. If only
 * the address of a frame is known, its location has that address and no lines. Addresses are those
 * of the file (vaddr), as if each binary were loaded where it was linked. The period is the mean of
 * a sample in bytes; 1: all blocks are known; 0: the figures are estimates of another kind.
 *
 * All of snapshot_meta is in lines "tracer:KEY=VALUE" (pprof_format.h); the first,
 * "tracer:snapshot=1", identifies the file as ours. The comments are a report's title and its
 * losses, for users of pprof.
 */
#pragma once

#include "snapshot/snapshot.h"
#include "util/account.h"
#include "util/buffer.h"
#include "util/infile.h"
#include "util/outfile.h"

/*
 * Memory limit per byte of a file: tracebacks of 128 frames that differ in a few frames are packed
 * to 1/250 of their size.
 */
#define PPROF_RATIO 400u

int pprof_write(const struct snapshot *snapshot, struct outfile *file); /* 0, -errno */
/* The same, and commits the file; discards it if that fails. Takes the file. 0, -errno. */
int pprof_save(const struct snapshot *snapshot, struct outfile *file);
/*
 * Appends the profile without packing it. What two snapshots of a program have in common are mostly
 * the same bytes if the seed is the same; nobody else should know it. 0, -ENOMEM and other errors
 * of pprof_write().
 */
int pprof_write_unpacked(const struct snapshot *snapshot, uint64_t seed, struct buffer *out);
/*
 * Reads a gzip'd file. 0; -EBADMSG corrupt, truncated, or not ours (error_set says what is wrong or
 * missing); -EFBIG unpacks to more than 4 GiB, or needs more memory than a file of its size may
 * (PPROF_RATIO); -errno. The caller frees the snapshot with snapshot_free().
 */
int pprof_read(struct infile *file, struct snapshot **out);
/* Only unpacks it. Errors as above; the caller frees the buffer, also on failure. */
int pprof_unpack(struct infile *file, struct buffer *out);
/* The same as pprof_read(), from an unpacked profile in memory. */
int pprof_parse(const unsigned char *profile, size_t bytes, struct snapshot **out);
/* The same; its memory is charged to the account; -EFBIG beyond the limit. */
int pprof_parse_in(struct account *account, const unsigned char *profile, size_t bytes,
		   struct snapshot **out);
