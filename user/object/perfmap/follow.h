/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows a file that another process appends to, a perf map or a jitdump: new content becomes
 * entries. The file is followed by its descriptor, so that its writer is still followed after
 * another file has taken its name.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "object/perfmap/jitdump.h"
#include "object/perfmap/process.h"
#include "object/perfmap/text.h"

#define PERFMAP_FILE_MAX (4ull << 30) /* bytes of a file that are read */

struct perfmap_follow {
	int fd;    /* owned */
	int watch; /* inotify watch; -1: none, the file is read every time */
	int dirty; /* it has grown or may have grown */
	int is_jitdump;
	/*
	 * An earlier process wrote to it, too: lines for memory that is not mapped now are not of
	 * this one. Until its present end is reached.
	 */
	int mapped_only;
	uint64_t until_ns; /* later records of a jitdump are ignored; 0: none are */
	int failed;        /* the error that ended following; 0: none */
	dev_t device;
	ino_t inode;
	uint64_t offset;
	/*
	 * the bytes just before offset, to detect that a writer has truncated and rewritten the
	 * file
	 */
	size_t tail_bytes;
	char tail[64];
	union {
		struct perfmap_text text;
		struct jitdump jitdump;
	};
};

/* Takes ownership of fd, also on failure. inotify: -1 for none. 0, -errno. */
int perfmap_follow_new(struct perfmap_follow **out, int fd, int is_jitdump, int inotify);
void perfmap_follow_free(struct perfmap_follow *follow, int inotify);
/*
 * Reads new content if the file is dirty: limit bytes at most, then it stays dirty. A file
 * that has shrunk, or whose last read bytes have changed, is read from its start again. 0; -ENOMEM.
 * A file that cannot be read further is given up (failed).
 */
int perfmap_follow_read(struct perfmap_follow *follow, struct perfmap_process *process,
			uint64_t limit);
/*
 * Reads to the end, whether dirty or not; but nothing of a file that was truncated, since that is
 * what the next program has written. 0; -ENOMEM.
 */
int perfmap_follow_finish(struct perfmap_follow *follow, struct perfmap_process *process);
/*
 * We have appended bytes [start, end) to the file: reads what is before them, and never them. 0;
 * -ENOMEM.
 */
int perfmap_follow_skip(struct perfmap_follow *follow, struct perfmap_process *process,
			uint64_t start, uint64_t end);
