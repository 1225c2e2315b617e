/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of Python's own tracemalloc: the pickles that Snapshot.dump() writes and
 * Snapshot.load() reads. Reading executes nothing. The reader accepts only the pickle instructions,
 * the two classes (tracemalloc.Snapshot and tracemalloc._Traces) and the tuples of which such a
 * file consists: a frame (file name, line), a traceback (frame, …), a trace (domain, size,
 * traceback[, total_nframe]), and all traces. Anything else is rejected with its offset. Memory use
 * is in proportion to the file. Protocols 2 to 5 are read, as pickle.dump(snapshot, file, protocol)
 * writes them in CPython 3.8 to 3.15; 3.8 and older have no total_nframe.
 */
#pragma once

#include "snapshot/snapshot.h"
#include "util/infile.h"
#include "util/outfile.h"

/*
 * Traces keep the file's order, each with count 1, and the mode is SNAPSHOT_TRACEMALLOC; functions
 * are "". 0; -EBADMSG for content that such a file cannot have (error_set says what and where);
 * -errno. The caller frees the snapshot.
 */
int tracemalloc_read(struct infile *file, struct snapshot **out);

/* The two layouts of a trace: without total_nframe (CPython 3.8 and older) and with it. */
enum tracemalloc_layout { TRACEMALLOC_3_8 = 3, TRACEMALLOC_3_9 = 4 };

/* The layout of the Python that the snapshot is of. */
enum tracemalloc_layout tracemalloc_layout_of(const struct snapshot *snapshot);
/*
 * Writes protocol 4, one trace per block. Any version loads either layout, but computes statistics
 * only of its own. 0, -errno.
 */
int tracemalloc_write(const struct snapshot *snapshot, enum tracemalloc_layout layout,
		      struct outfile *file);
