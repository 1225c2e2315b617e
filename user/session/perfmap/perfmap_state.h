/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a perf map session, shared by perfmap_session.c and perfmap_probe.c only. */
#pragma once

#include <sys/types.h>

#include "attach/perfmap_attach.h"
#include "attach/selftest/seccomp.h"
#include "object/elf/elf_file.h"
#include "proc/process.h"
#include "session/perfmap/perfmap_session.h"

/* A file that was planned; its probes are placed once, for all processes that map it. */
struct probed {
	dev_t device;
	ino_t inode;
	struct elf_file *file; /* NULL: there is nothing to probe */
	int sites, python;
	uint64_t descriptor;
};

struct perfmap_session {
	struct perfmap_session_opts opts;
	struct features features;
	struct seccomp_answer seccomp;
	struct perfmap_attach *attach;
	struct perfmaps *maps;
	struct jitdump_out *jitdump; /* NULL: none is written */
	struct perfmap_target **targets;
	size_t count, capacity;
	struct probed *files;
	size_t file_count, file_capacity;
	int inotify;
};

/*
 * Places the missing probes in the files that the target maps, and adds the images that its JITs
 * have registered so far. 0; -ENOENT a file that an option names is not mapped; -errno with its
 * reason.
 */
int perfmap_probe(struct perfmap_session *session, struct perfmap_target *target);

/*
 * One process of a perfmap session: the files that it appends to, and what of its memory is mapped.
 */

/*
 * Reads the mappings: finds jitdumps, which their writers map for that purpose, and expires entries
 * whose memory is unmapped: not at all, those that were so at the last time, too, or all. 0,
 * -ENOMEM.
 */
enum perfmap_expiry { PERFMAP_EXPIRE_NONE, PERFMAP_EXPIRE_LATE, PERFMAP_EXPIRE_ALL };
