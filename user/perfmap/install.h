/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a map where perf looks for it: perf-PID.map under the host's process id in our /tmp, and
 * under the id of the innermost PID namespace in the target's own /tmp. A file there is replaced by
 * rename, never written through, and only if it is what it should be: a regular file of root's,
 * ours or the target's.
 *
 * perf believes a map that belongs to root or to whoever runs it; so the file is ours. The target's
 * user gets an access entry (POSIX ACL) besides: CPython opens its map when it first has something
 * to say, and must not fail because we were there before.
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
	char shown[64];        /* for messages */
	struct stat installed; /* as we left it; st_ino 0: not yet */
};

struct perfmap_places {
	struct perfmap_place
		/* the target's, ours; the first has no directory where it is the second */
		at[2];
	/* which of them the process itself writes to; -1: none that we can reach */
	int target;
	uint32_t uid;     /* of the target */
	uint64_t version; /* of the table, when it was last installed; UINT64_MAX: never */
};

/*
 * Finds the places of a process that is there; the directories stay open, so that they are known
 * when it has ended. 0; -errno (error_set) when its own /tmp cannot be had: then only ours is in
 * there.
 */
int perfmap_places_open(struct perfmap_places *places, pid_t pid, pid_t ns_pid, uint32_t uid);
/* Of a process that has ended and that was in no namespace: our /tmp alone. 0, -errno. */
int perfmap_places_open_own(struct perfmap_places *places, pid_t pid, uint32_t uid);
void perfmap_places_close(struct perfmap_places *places);

/*
 * Installs the map in every place; a file whose content is right already is left alone, and so is
 * everything if the table has not changed since and the files are there. 1: something was written,
 * 0: nothing; -errno (error_set names the file) for the first place where it was not possible; the
 * other is tried all the same.
 */
int perfmap_install(struct perfmap_places *places, const struct perfmap_table *table);

#endif
