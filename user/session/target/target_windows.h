/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The windows of a target in EVENT_MODE_WINDOWS: places and removes the probes of small blocks,
 * and of large ones if these are traced in windows, too; reads the pools and the large blocks that
 * were seen in windows. Where Python's layer is not traced, they are those of the native layer:
 * malloc's probes are in place in windows, and all of malloc's heap is read. Included by
 * user/session/target/ and user/session/ only.
 */
#pragma once

#include <stdint.h>

#include "attach/selftest/hit_cost.h"
#include "probe/process/plan_target.h"
#include "probe/process/plan_text.h"
#include "proc/threads.h"
#include "runtime/malloc/allocator.h"
#include "session/overhead/governor.h"
#include "session/overhead/windows.h"

struct session;
struct target;

enum target_window {
	WINDOW_NONE,    /* the target is not in that mode, or no window is possible */
	WINDOW_WAITING, /* for the next one */
	WINDOW_OPEN,
	WINDOW_CLOSING, /* the kernel removes the probes */
};

/* A moment: the target's CPU time, the hits of its probes and the tracer's CPU time so far. */
struct window_mark {
	uint64_t time_ns, cpu_ns, hits, own_ns;
};

struct target_windows {
	enum target_window state;
	struct windows windows;
	struct windows_next next;
	struct plan_target plan;  /* with the sites; owned while state is not WINDOW_NONE */
	struct plan_text text;    /* where these sites are */
	uint64_t opened_ns;       /* when the open or last one began; 0: there was none */
	uint64_t dropped_ns;      /* when its links were given to be closed; 0: not yet */
	uint64_t closing_ns;      /* the next check whether the kernel removes breakpoints */
	size_t site;              /* of text: those before are clear of breakpoints */
	uint64_t marks;           /* the kinds of sites that had breakpoints when it began */
	uint64_t checked_ns;      /* blocks that were allocated before this have been checked */
	struct threads_time busy; /* when it began; 0: not known */
	int foreign;              /* there were breakpoints before ours were placed */
	/* the end of the last one, placing, the beginning, the end */
	struct window_mark after, placing, begin, end;
	double share; /* of the target's CPU time that probes took, since the window before */
	/* the cost of the last window's probes until it is judged; then cpu_ns is 0 */
	struct governor_period inside;
	uint64_t recheck_ns; /* when the pools were last read */
	uint64_t recheck_took_ns;
	/* the next recheck of the last window's pools, after its end; 0: none. What these took */
	uint64_t last_after_ns, last_took_ns;
	struct allocators heaps; /* native: malloc's; none: not found yet */
	uint64_t walked_ns;      /* when they were last walked; 0: never */
	/* address of the pool, and of the large block, from which to read on */
	uint64_t recheck_from, large_from;
	unsigned int failed; /* windows without probes in a row, since these could not be placed */
	int refused;         /* no further window is possible: the governor takes its next step */
};

/*
 * Can a target with this plan be traced in windows? 0; -ENOTSUP with its reason.
 */
int target_windows_possible(const struct session *session, const struct target *target,
			    const struct plan_target *plan);
/* The same for the native layer: the heap of each allocator that is probed can be read. */
int target_native_possible(const struct session *session, const struct target *target,
			   const struct plan_target *plan);
/*
 * Can large blocks be traced in windows, too? Then malloc's heap can be asked which of them are
 * still allocated. 0; -ENOTSUP and other errors of glibc_open(), with the reason.
 */
int target_large_possible(const struct target *target);
/* The groups of its probes that are in place in windows only: enum attach_group. */
unsigned int target_window_groups(const struct target *target);
/*
 * The target is in that mode, and its other probes are in place. Takes over the plan. Windows
 * follow from session_windows_due().
 */
void target_windows_begin(struct session *session, struct target *target, struct plan_target *plan);
/*
 * The target is in that mode since now, and the probes of small blocks are in place: the trace has
 * begun a window. Ends it, before target_windows_begin().
 */
void target_windows_take(struct session *session, struct target *target);
/* The other probes are fewer now: the next window is chosen anew. */
void target_windows_again(struct session *session, struct target *target);
/*
 * The target has mapped other files, with the allocators that plan lists: windows of the native
 * layer have their probes, too, from the next one on. May take over plan's list.
 */
void target_windows_extend(struct session *session, struct target *target,
			   struct plan_target *plan);
/* Ends an open window, before a walk or another mode. */
void target_window_close(struct session *session, struct target *target);
/* The target leaves the mode. */
void target_windows_end(struct session *session, struct target *target);
/* Frees what it has, without a record. */
void target_windows_free(struct target *target);
/* Begins and ends the windows that are due, and reads pools. */
void session_windows_due(struct session *session, uint64_t now_ns);
/* Time to the next of these; UINT64_MAX: there is none. */
uint64_t session_windows_left_ns(const struct session *session, uint64_t now_ns);
/* A look at large blocks: fresh is within a window; returns whether all of them were read. */
int target_large_fresh(struct session *session, const struct target *target);
void target_large_recheck(struct session *session, struct target *target);
/*
 * The windows are those of the native layer: walks malloc's heap. The first walk says which blocks
 * are older than the trace. 0, -errno.
 */
int target_native_walk(struct session *session, struct target *target);
/*
 * If small blocks are traced in windows: walks malloc's heap, which says how many large ones there
 * are of each size, and which of those that were seen in windows are still allocated. To be called
 * before a heap walk, so that both have shown what is new.
 */
void target_large_walk(struct session *session, const struct target *target);
/* Feeds a record of a look: heap_kinds_opts.record, with a struct target_recheck. */
struct target_recheck {
	struct session *session;
	const struct target *target;
	int fresh; /* -ECANCELED unless the window is whole */
};
int target_recheck_feed(void *look, const void *record, size_t size);
/* Is a window of some target open? */
int session_windows_open(const struct session *session);
/* Is a window open or being closed, so that hits are not those of the other probes alone? */
int target_window_busy(const struct target *target);
/* The trace ended a child's window, which it inherited with its parent's tables. 0, -errno. */
int target_window_inherited(struct session *session, struct target *child);
