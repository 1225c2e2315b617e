/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that somebody else appends to, a perf map or a jitdump: what is new in it becomes entries.
 * It is followed by its descriptor, so that its writer goes on to be heard when another file has
 * taken its name.
 */
#ifndef TRACER_PERFMAP_FOLLOW_H
#define TRACER_PERFMAP_FOLLOW_H

#include <stdint.h>
#include <sys/types.h>

#include "perfmap/jitdump.h"
#include "perfmap/process.h"
#include "perfmap/text.h"

struct perfmap_follow {
	int fd;    /* owned */
	int watch; /* inotify's; -1: none, it is looked at every time */
	int dirty; /* it has grown, or may have */
	int is_jitdump;
	int failed; /* the error that ended it; 0: none */
	dev_t device;
	ino_t inode;
	uint64_t offset;
	/*
	 * what stood just before offset, to know the file again: another writer may begin it anew
	 */
	size_t tail_bytes;
	char tail[64];
	union {
		struct perfmap_text text;
		struct jitdump jitdump;
	};
};

/* Takes ownership of fd, in any case. inotify: -1 for none. 0, -errno. */
int perfmap_follow_new(struct perfmap_follow **out, int fd, int is_jitdump, int inotify);
void perfmap_follow_free(struct perfmap_follow *follow, int inotify);
/*
 * Reads what is new, if it is dirty, at most about limit bytes (then it stays dirty). A file that
 * has shrunk, or is another one where it was read last, is read from its start again. 0; -ENOMEM; a
 * file that cannot be read any further is given up (failed).
 */
int perfmap_follow_read(struct perfmap_follow *follow, struct perfmap_process *process,
			uint64_t limit);

#endif
