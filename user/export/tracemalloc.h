/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of Python's own tracemalloc: what Snapshot.dump() writes and Snapshot.load() reads, a
 * pickle.
 *
 * Reading executes nothing. Of the pickle machine there are only the instructions, of the classes
 * only the two (tracemalloc.Snapshot and tracemalloc._Traces) that such a file is made of, and of
 * tuples only those that are a frame (file name, line), a traceback (frame, …), a trace (domain,
 * size, traceback[, total_nframe]) or all traces; anything else is refused with its offset. Memory
 * is in proportion to the file. Protocols 2 to 5, as pickle.dump(snapshot, file, protocol) writes
 * them with CPython 3.8 to 3.15; 3.8 and before have no total_nframe.
 */
#ifndef TRACER_EXPORT_TRACEMALLOC_H
#define TRACER_EXPORT_TRACEMALLOC_H

#include "base/infile.h"
#include "base/outfile.h"
#include "snapshot/snapshot.h"

/*
 * Traces come in the file's order, each by itself (count 1), with mode SNAPSHOT_TRACEMALLOC;
 * functions are "". 0; -EBADMSG for what such a file cannot hold (error_set says what and where);
 * -errno. Caller frees.
 */
int tracemalloc_read(struct infile *file, struct snapshot **out);

/* The two shapes of a trace: without total_nframe (CPython 3.8 and before) and with it. */
enum tracemalloc_layout { TRACEMALLOC_3_8 = 3, TRACEMALLOC_3_9 = 4 };

/* The one that the Python had which the snapshot is of. */
enum tracemalloc_layout tracemalloc_layout_of(const struct snapshot *snapshot);
/*
 * Protocol 4, one trace for each block. Any version loads either layout, but can compute statistics
 * only of its own. 0, -errno.
 */
int tracemalloc_write(const struct snapshot *snapshot, enum tracemalloc_layout layout,
		      struct outfile *file);

#endif
