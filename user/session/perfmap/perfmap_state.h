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
 * Finds processes with the same id in their PID namespace and the same /tmp, which write the same
 * map file: targets, and for a target that was named also others that have it open.
 */
void perfmap_rivals_find(struct perfmap_session *session, struct perfmap_target *target);

/*
 * One process of a perfmap session: the files that it appends to, and what of its memory is mapped.
 */

/*
 * Fills a target whose pid and process are set. 0, -errno (error_set). pidfd is -1 if the process
 * could not be opened.
 */
int perfmap_target_open(struct perfmap_target *target);
/*
 * For a child that has ended before it could be opened: where its map is installed is known if its
 * parent is in no PID namespace.
 */
void perfmap_target_inherit(struct perfmap_target *target, const struct perfmap_target *parent);
/*
 * It runs another program now, possibly in another root: drops files and places, and finds the
 * places again. 0, -errno.
 */
int perfmap_target_renew(struct perfmap_target *target, int inotify);
void perfmap_target_close(struct perfmap_target *target, int inotify);

/*
 * Follows the map file and the jitdump in the process's /tmp, unless they are followed already; a
 * map that we installed, or that an earlier process wrote, is followed from its end. from_start:
 * also reads the existing contents. A file that must not be read is counted in files_refused.
 */
void perfmap_target_find_files(struct perfmap_target *target, int inotify, int from_start);
/*
 * Finds out by its descriptors whether its map file is open, and sets process->file. An open file
 * is followed, so it is read even if its name is removed.
 */
void perfmap_target_find_open(struct perfmap_target *target, int inotify, int from_start);
/*
 * Reads the mappings: finds jitdumps, which their writers map for that purpose, and expires entries
 * whose memory is unmapped: not at all, those that were so at the last time, too, or all. 0,
 * -ENOMEM.
 */
enum perfmap_expiry { PERFMAP_EXPIRE_NONE, PERFMAP_EXPIRE_LATE, PERFMAP_EXPIRE_ALL };
int perfmap_target_scan(struct perfmap_target *target, int inotify, enum perfmap_expiry expiry);
/*
 * Reads all that the process has written so far; it ends, forks or executes a program. 0, -ENOMEM.
 */
int perfmap_target_settle(struct perfmap_target *target, int inotify);
/*
 * A process has the memory of the one that forked it, and its functions: reads what that has
 * written, and those before it. Before its own files, which are newer. 0, -ENOMEM.
 */
int perfmap_target_read_ancestors(struct perfmap_target *target);
/*
 * Installs its map, as perfmap_install(); what it appends is not read again as the process's own.
 */
int perfmap_target_install(struct perfmap_target *target, int inotify);
/* Reads what was appended to its files, at most about limit bytes of each. 0, -ENOMEM. */
int perfmap_target_read(struct perfmap_target *target, uint64_t limit);
/* The file with this inotify watch has grown. */
void perfmap_target_mark(struct perfmap_target *target, int watch);
