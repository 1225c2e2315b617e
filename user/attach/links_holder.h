/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that makes and holds all links, so that a SIGKILL never finds one half made or half
 * closed.
 *
 * The kernel places and removes a breakpoint as the task that creates a link, or closes its last
 * descriptor. While a fatal signal is pending for that task it does neither
 * (kernel/events/uprobes.c: get_user_pages_remote() ends with -EINTR), says "unregister, leaking
 * uprobe", and leaves the breakpoints in the text of the target. Descriptors that are closed by the
 * end of a process are safe: a SIGKILL is not pending any more when exit closes files, and none is
 * accepted from then on.
 *
 * So links are made here, by a child that is in a session of its own and blocks all signals, and
 * they are closed in one way: a process that holds them ends. For some of them that is a child of
 * this one (all of them: this one itself), which it hands them to. It ends by itself when its owner
 * has ended, in whatever way.
 *
 * What is left: a SIGKILL for this process itself while it makes a link, as of a whole control
 * group.
 */
#ifndef TRACER_ATTACH_LINKS_HOLDER_H
#define TRACER_ATTACH_LINKS_HOLDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/links.h"

#define LINKS_HOLDER_NAME "tracer-links" /* as ps shows it */

/*
 * What somebody who waits for the end waits for the kernel: it takes the links out one after the
 * other, each in a millisecond or, on a machine that has much else to do, in a tenth of a second.
 */
#define LINKS_END_MS 250

struct links_holder;

/* Starts it. Descriptors that are open now are not kept open by it. 0, -errno. */
int links_holder_new(struct links_holder **out);
/*
 * It ends, and with it all links. wait_ms: so long at most (-1: without end) it is waited for that
 * the kernel has taken them out. 1: it has; 0: it goes on with that. NULL is legal.
 */
int links_holder_free(struct links_holder *holder, int wait_ms);
pid_t links_holder_pid(const struct links_holder *holder);
/* Is it there? 0; -EOWNERDEAD it was killed, and no probe is in place any more. */
int links_holder_check(const struct links_holder *holder);
/* It keeps the rights that privileges_drop(0, attaches) keeps. 0, -errno. */
int links_holder_confine(struct links_holder *holder, int attaches);
/*
 * It removes this file should its owner end without links_holder_free(). The last one counts. 0,
 * -errno.
 */
int links_holder_sweep(struct links_holder *holder, const char *path);
/* Descriptors of links that it has. */
size_t links_holder_count(const struct links_holder *holder);

/* Links of one program. */
struct links_wanted {
	enum links_backend backend;
	enum links_kind kind;
	int program, file; /* descriptors, borrowed */
	pid_t pid;         /* -1: in all processes */
	const uint64_t *offsets, *cookies;
	size_t count;
};

/*
 * Makes them, as one group. 0, -EOWNERDEAD as links_holder_check(), -errno with its reason; *group
 * and *made (descriptors) are set in any case: what was made before a failure is held.
 */
int links_holder_add(struct links_holder *holder, const struct links_wanted *wanted,
		     uint32_t *group, size_t *made);
/*
 * Takes groups out that have so many descriptors together. wait: returns when the kernel has taken
 * them out.
 */
void links_holder_drop(struct links_holder *holder, const uint32_t *groups, size_t count,
		       size_t descriptors, int wait);

#endif
