/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots from files of any readable kind; the kind is detected from the content. */
#pragma once

#include "report/recording/recording_load.h"
#include "snapshot/snapshot.h"

#define SNAPSHOT_MEMBER "snapshot.pb.gz" /* of a bundle of evidence (archive.h) */

/*
 * Loads a gzip'd pprof profile of tracer (pprof.h) or a file of tracemalloc.Snapshot.dump()
 * (tracemalloc.h), or that in a bundle of evidence. 0; -EBADMSG: neither, or incomplete (error_set
 * says what is wrong); -ENOENT: no file, or a bundle without one (error_set); -EFBIG; -errno.
 * The caller frees the snapshot with snapshot_free().
 */
int snapshot_load(const char *path, struct snapshot **out);

/*
 * The same, and a recording (recording_load.h), of which it loads one snapshot. Unless a file has
 * that name or the choice has a time, path may also be FILE@TIME or FILE@T1..T2. note is set for a
 * recording, otherwise "". Further errors: -EINVAL: not a time, or not of a recording; -ERANGE: the
 * recording begins later, or has no snapshot in the range.
 */
int snapshot_load_at(const char *path, const struct recording_choice *choice,
		     char note[RECORDING_NOTE_BYTES], struct snapshot **out);
