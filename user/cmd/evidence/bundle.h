/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle of evidence: what was kept of a process whose memory ran out, in one file (an archive,
 * util/archive.h). Its members, each missing if there is nothing to put into it:
 *
 *   evidence.json              reason, time, the process, the limit, the copies (docs/schema/)
 *   report.txt                 all of it on a page: what grew, what holds most, what RSS was
 *   leaks.json, paths.json     tracer leaks of the copies; tracer heap --by path of the last
 *   memory.txt, memory.json    tracer memory, of the last copy's time
 *   heap-1.dump, heap-2.dump   copies of the heap, for tracer heap
 *   heap.dump                  the last one
 *   snapshot.pb.gz             of a session that traced the process
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "cmd/evidence/suspect.h"
#include "proc/container/memory_watch.h"
#include "util/outfile.h"

#define BUNDLE_REPORT "report.txt"

enum bundle_reason { BUNDLE_OOM, BUNDLE_MEMORY };

struct bundle {
	enum bundle_reason reason;
	uint64_t time_ns; /* CLOCK_REALTIME, of the kill or the threshold */
	const struct suspect *suspect;
	const struct memory_state *state;
	const struct memory_watch *watch;
	const struct trigger *trigger; /* of BUNDLE_MEMORY; its kind: */
	enum trigger_kind kind;
	uint64_t rss;      /* of the process when it was reached */
	const char *path;  /* of the bundle */
	unsigned int keep; /* bundles of that name, in PATH, PATH.1, ... */
	int folder;        /* with the suspect's files */
	const char *folder_path;
};

/*
 * Starts a process that writes the bundle: it ends with EXIT_DONE, or after a message. Returns its
 * id; -errno.
 */
pid_t bundle_begin(const struct bundle *bundle);
/*
 * Prints a member of the bundle, a text: what would act on a terminal is escaped, and lines are
 * broken for one; the command of a line "next: " names path. parts: so many of its parts, with a
 * blank line between them; 0: all. 0; -ENOENT; -EINVAL: it is no bundle; -errno.
 */
int bundle_print(const char *path, const char *member, unsigned int parts, FILE *out);
/* Prints when its figures of memory were read: a line; nothing if it does not say. */
void bundle_memory_time_print(const char *path, FILE *out);
/* Writes its texts as one page for a browser. Errors as above. */
int bundle_html(const char *path, struct outfile *out);
/* Is the file a bundle? */
bool bundle_is(const char *path);
/*
 * The copies of the heap in a bundle as paths for tracer heap, the oldest first. Their number;
 * -errno. The caller frees the paths.
 */
int bundle_dumps(const char *path, char *paths[SUSPECT_COPIES]);
