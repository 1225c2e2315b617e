/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A jitdump that tracer writes for perf inject --jit: names and bytes of the code of other
 * processes.
 *
 * perf inject takes a file as a jitdump if a process has mapped it executable and the file's name
 * is jit-PID.dump, where PID is that process. Which process the code is of stands in each record.
 * So the file has our own id in its name, and a page of it stays mapped until it is closed. perf
 * sees the mapping if it records our process, too, whichever of both began first.
 *
 * Records are appended whole: perf may read the file at any time.
 */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "object/perfmap/jitdump.h"
#include "proc/memory.h"
#include "util/buffer.h"
#include "util/outfile.h"

#define JITDUMP_CODE_MAX (1u << 20)   /* bytes of a function; a larger one is left out */
#define JITDUMP_FILE_MAX (1ull << 30) /* bytes of the file; what is beyond it is left out */

struct jitdump_out {
	int fd;
	void *page;          /* mapped; NULL: not */
	char path[PATH_MAX]; /* absolute */
	uint64_t bytes;      /* written */
	uint64_t records;
	uint64_t unread;   /* of them: the code could not be read, and is zeros */
	uint64_t left_out; /* functions beyond the limits */
	int failed;        /* the error that ended the writing, with its reason; 0: none */
	struct buffer record;
};

/*
 * Creates jit-PID.dump in an existing directory, as outfile_open(), and maps it; or a file of
 * another name, with that as a second name beside it. 0; -EPERM: the file system is mounted noexec;
 * -errno, all with error_set().
 */
int jitdump_out_new(struct jitdump_out **out, const char *where, enum outfile_replace replace);
/* Removes the file if it has no record. NULL is legal. */
void jitdump_out_free(struct jitdump_out *out);
/*
 * Appends a record of code in process pid, whose bytes are read from space; NULL: it has ended.
 * Control characters in the name are escaped. The record is a nanosecond older than the code: in
 * perf the later one wins, which is to be that of a jitdump of the process itself. After a failure
 * (failed) nothing is written.
 */
void jitdump_out_add(struct jitdump_out *out, pid_t pid, struct space *space,
		     const struct jitdump_code *code);
