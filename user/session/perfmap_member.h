/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process of a perfmap session: the files that it appends to, and what of its memory is mapped.
 */
#ifndef TRACER_SESSION_PERFMAP_MEMBER_H
#define TRACER_SESSION_PERFMAP_MEMBER_H

#include "process/process.h"
#include "session/perfmap_session.h"

/*
 * Fills a member whose pid and process are set. -1: the process has ended already, or is none. 0,
 * -errno (error_set).
 */
int perfmap_member_open(struct perfmap_member *member);
/*
 * Where the map of a child that has ended before it could be opened goes: known if its parent is in
 * no namespace.
 */
void perfmap_member_inherit(struct perfmap_member *member, const struct perfmap_member *parent);
/*
 * It runs another program now, maybe in another root: forgets files and places, and finds the
 * places again. 0, -errno.
 */
int perfmap_member_renew(struct perfmap_member *member, int inotify);
void perfmap_member_close(struct perfmap_member *member, int inotify);

/*
 * Follows the map file that the process's /tmp holds by now, unless it is followed or is as we
 * installed it. from_start: what is in it already counts, too. A file that must not be read is
 * counted, and files_refused tells.
 */
void perfmap_member_find_map(struct perfmap_member *member, int inotify, int from_start);
/*
 * Is its map file open? By its descriptors; sets process->file. What is open is followed, and so is
 * read even when the file's name is gone.
 */
void perfmap_member_find_open(struct perfmap_member *member, int inotify, int from_start);
/*
 * What is mapped: expires entries, and finds jitdumps, which their writer maps to be found. 0,
 * -ENOMEM.
 */
int perfmap_member_scan(struct perfmap_member *member, int inotify);
/* Reads what is new in its files, at most about limit bytes of each. 0, -ENOMEM. */
int perfmap_member_read(struct perfmap_member *member, uint64_t limit);
/* The file that an inotify event is about has grown. */
void perfmap_member_mark(struct perfmap_member *member, int watch);

#endif
