/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that creates and holds all links, so that a SIGKILL never interrupts the creation or
 * removal of a link.
 *
 * The kernel places and removes breakpoints in the task that creates a link, or that closes its
 * last descriptor. While a fatal signal is pending for that task it does neither
 * (kernel/events/uprobes.c: get_user_pages_remote() ends with -EINTR), logs "unregister, leaking
 * uprobe", and leaves the breakpoints in the target's text. Descriptors that are closed by the end
 * of a process are safe: SIGKILL is no longer pending when exit closes files, and no more signals
 * are accepted from then on.
 *
 * Therefore links are created here, in a child that has a session of its own and blocks all
 * signals, and they are closed in one way only: a process that holds them exits. To close some of
 * the links, this process passes them to a child of its own, which exits; to close all, it exits
 * itself. It also exits when its owner has ended for any reason, and within a second or so when its
 * owner was killed but cannot end, because it waits in the kernel for a file system that does not
 * answer. No other process holds a descriptor of a link for long, so that is enough.
 *
 * It moves to the root of the cgroup hierarchies that are mounted writable here, since a whole
 * control group may be killed at once. The remaining risk is a SIGKILL for this process itself
 * while it creates a link: in a container whose control group it cannot leave.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/links/links.h"

#define LINK_KEEPER_NAME "tracer-links" /* shown by ps */

/*
 * The longest wait for the kernel at the end. It removes the links one after the other, each in a
 * millisecond or, on a busy machine, in a tenth of a second.
 */
#define LINKS_END_MS 250

/*
 * The calls below that wait for an answer end with -EINTR LINKS_END_MS after the user has begun to
 * wait for our end (proc/patience.h): the kernel may place and remove probes only when each
 * process that maps the file lets go its memory map. The holder then ends by itself, later, and
 * each further call fails with -EINTR.
 */
struct link_keeper;

/* Starts the process. It does not keep our open descriptors open. 0, -errno. */
int link_keeper_new(struct link_keeper **out);
/*
 * Ends the process, and with it all links. Waits up to wait_ms (-1: without limit) until the kernel
 * has removed them. 1: it has; 0: the removal continues. NULL is legal.
 */
int link_keeper_free(struct link_keeper *holder, int wait_ms);
pid_t link_keeper_pid(const struct link_keeper *holder);
/* 0 if it runs; -EOWNERDEAD it was killed, and no probe is in place any more. */
int link_keeper_check(const struct link_keeper *holder);
/* Drops its privileges as privileges_drop(0, attaches). 0, -errno. */
int link_keeper_confine(struct link_keeper *holder, int attaches);
/*
 * Makes it remove this file if its owner ends without link_keeper_free(). Only the last path
 * counts. 0, -errno.
 */
int link_keeper_sweep(struct link_keeper *holder, const char *path);
/* The number of link descriptors that it holds. */
size_t link_keeper_count(const struct link_keeper *holder);

/* A request for links of one program. */
struct links_spec {
	enum links_backend backend;
	enum links_kind kind;
	int program, file; /* descriptors, borrowed */
	pid_t pid;         /* -1: in all processes */
	struct links_sites sites;
};

/*
 * Creates links, as one group. 0, -EOWNERDEAD as link_keeper_check(), -errno with its reason.
 * *group and *made (descriptors) are always set: what was created before a failure is kept.
 */
int link_keeper_add(struct link_keeper *holder, const struct links_spec *spec, uint32_t *group,
		    size_t *made);
/*
 * Removes groups; descriptors is the sum of their descriptors. wait: returns when the kernel has
 * removed them.
 */
void link_keeper_drop(struct link_keeper *holder, const uint32_t *groups, size_t count,
		      size_t descriptors, int wait);
