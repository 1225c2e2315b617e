/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of captured memory. A dump holds the memory itself, and with it every text and number that
 * the process had: it is written with mode 0600. Its format belongs to one version of the tracer,
 * and another is refused. A dump that is read is hostile.
 */
#pragma once

#include "inspect/dump/capture.h"
#include "util/outfile.h"

#define DUMP_MEMBER "heap.dump" /* of a bundle of evidence: the one that is read */

/* 0, -errno. The caller commits the file. */
int dump_write(struct outfile *file, const struct capture *capture);
/* Is the file a dump, of whatever version? */
bool dump_is(const char *path);
/*
 * path: as archive_infile(). Reads at most most_bytes of memory; 0: no limit. 0; -EINVAL: it is no
 * dump, one of another version, or damaged (error_set); -EDQUOT (error_set); -ENOMEM; -errno. *out
 * is the caller's to capture_free(), untouched on failure.
 */
int dump_read(struct capture *out, const char *path, uint64_t most_bytes);
