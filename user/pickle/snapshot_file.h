/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots from files of any readable kind; the kind is detected from the content. */
#ifndef TRACER_PICKLE_SNAPSHOT_FILE_H
#define TRACER_PICKLE_SNAPSHOT_FILE_H

#include "snapshot/snapshot.h"

/*
 * Loads a gzip'd pprof profile of tracer (pprof.h) or a file of tracemalloc.Snapshot.dump()
 * (tracemalloc.h). 0; -EBADMSG: neither, or incomplete (error_set says what is wrong); -EFBIG;
 * -errno. The caller frees the snapshot with snapshot_free().
 */
int snapshot_load(const char *path, struct snapshot **out);

#endif
