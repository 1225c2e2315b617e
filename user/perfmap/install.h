/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installs a map where perf searches for it: as perf-PID.map under the host's process id in our
 * /tmp, and under the id of the innermost PID namespace in the target's own /tmp. An existing file
 * is replaced by rename, never written through, and only if it is a regular file of root, of our
 * user or of the target's user.
 *
 * perf trusts a map that belongs to root or to the user who runs perf, so the file belongs to us.
 * The target's user gets an access entry (POSIX ACL) in addition: CPython opens its map when it
 * first writes an entry, and must not fail because our file exists.
 */
#ifndef TRACER_PERFMAP_INSTALL_H
#define TRACER_PERFMAP_INSTALL_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "perfmap/table.h"

struct perfmap_place {
	int directory; /* -1: none; owned */
	char name[32];
	char shown[64];        /* path for messages */
	struct stat installed; /* as it was installed; st_ino 0: not yet */
};

struct perfmap_places {
	/* the target's, ours; the first has no directory if both are the same */
	struct perfmap_place at[2];
	/* index of the one that the process itself writes to; -1: not accessible */
	int target;
	uint32_t uid;     /* of the target */
	uint64_t version; /* table version that was last installed; UINT64_MAX: none */
};

/*
 * Opens the directories of a running process. They stay open, so that they can be used after the
 * process has ended. 0; -errno (error_set): its own /tmp cannot be opened, and only ours is set.
 */
int perfmap_places_open(struct perfmap_places *places, pid_t pid, pid_t ns_pid, uint32_t uid);
/* The same for a process that has ended and was in no other namespace: only our /tmp. 0, -errno. */
int perfmap_places_open_own(struct perfmap_places *places, pid_t pid, uint32_t uid);
void perfmap_places_close(struct perfmap_places *places);

/*
 * Installs the map in both directories. A file that already has the right content is not written,
 * and nothing is done if the table has not changed and the files are still there. 1: something was
 * written; 0: nothing; -errno (error_set names the file): the first failure; the other directory is
 * tried in any case.
 */
int perfmap_install(struct perfmap_places *places, const struct perfmap_table *table);

#endif
