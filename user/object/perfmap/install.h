/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installs a map where perf searches for it: as perf-PID.map under the host's process id in our
 * /tmp, and under the id of the innermost PID namespace in the target's own /tmp.
 *
 * A file that the process writes itself stays its file, since the process keeps it open: a file
 * that took its name would lack whatever the process writes later. The entries that it lacks are
 * appended to it. perf keeps every line and finds any of two that overlap, so an entry that
 * overlaps one of the file is not appended. A process that writes at an offset of its own (node)
 * would overwrite what is appended: its file is left alone.
 *
 * A file that we made is replaced by rename as long as it has nothing but our lines and the process
 * has not opened it; so is one that was last written before the process began. perf trusts a map
 * that belongs to root or to the user who runs perf, so the file belongs to us, and the process's
 * own file becomes ours. The target's user gets an access entry (POSIX ACL) in addition: CPython
 * opens its map when it first writes an entry, and must not fail because our file exists.
 *
 * Only regular files of root, of our user or of the target's user are touched.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "object/perfmap/perfmap_table.h"
#include "util/account.h"

struct perfmap_place {
	int directory; /* -1: none; owned */
	char name[32];
	char shown[64]; /* path for messages */
	/* the file there that had all entries when it was last looked at; inode 0: none yet */
	dev_t device;
	ino_t inode;
	uint64_t bytes; /* its size then */
	int ours;       /* we made it, and its bytes are our lines */
	/* where we appended to a file of the process; both 0: not since this was cleared */
	uint64_t appended_start, appended_end;
	size_t conflicts; /* entries that overlap lines of the process's own file */
	pid_t rival;      /* another process with this id and this directory; 0: none known */
};

struct perfmap_places {
	/* the target's, ours; the first has no directory if both are the same */
	struct perfmap_place at[2];
	/* index of the one that the process itself writes to; -1: not accessible */
	int target;
	pid_t pid;
	uint32_t uid;      /* of the target */
	uint64_t begun_ns; /* when it began, CLOCK_REALTIME; 0: not known */
	uint64_t version;  /* table version that was last installed; UINT64_MAX: none */
};

/*
 * Opens the directories of a running process. They stay open, so that they can be used after the
 * process has ended. 0; -errno (error_set): its own /tmp cannot be opened, and only ours is set.
 */
int perfmap_places_open(struct perfmap_places *places, pid_t pid, pid_t ns_pid, uint32_t uid);
/* The same for a process that has ended and was in no other namespace: only our /tmp. 0, -errno. */
int perfmap_places_open_own(struct perfmap_places *places, pid_t pid, uint32_t uid);
void perfmap_places_close(struct perfmap_places *places);
/* It runs another program: the files that were installed before are still ours. */
void perfmap_places_continue(struct perfmap_places *places, const struct perfmap_places *before);
/* The process has another user now, who may write to the files that we made. */
void perfmap_places_user(struct perfmap_places *places, uint32_t uid);
/* Was this file last written before the process began? Then an earlier process with its id did. */
int perfmap_places_stale(const struct perfmap_places *places, const struct stat *file);

/*
 * Installs the map in both directories. Nothing is written if a file has all entries, and nothing
 * is read if the table has not changed and the files are still there. Memory for the lines of the
 * process's own file is charged to the account. 1: something was written; 0: nothing; -EBUSY
 * entries are missing in a file that must not be appended to; -errno (error_set names the file):
 * the first failure; the other directory is tried in any case.
 */
int perfmap_install(struct perfmap_places *places, const struct perfmap_table *table,
		    struct account *account);
