/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots in files of any kind that can be read: the kind is seen from the content. */
#ifndef TRACER_EXPORT_SNAPSHOT_FILE_H
#define TRACER_EXPORT_SNAPSHOT_FILE_H

#include "snapshot/snapshot.h"

/*
 * A gzip'd pprof profile of ours (pprof.h) or a file of tracemalloc.Snapshot.dump()
 * (tracemalloc.h). 0; -EBADMSG neither, or not whole (error_set says what is wrong); -EFBIG;
 * -errno. Caller frees with snapshot_free().
 */
int snapshot_load(const char *path, struct snapshot **out);

#endif
