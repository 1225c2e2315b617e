/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The windows of a member in EVENT_MODE_WINDOWS: places and removes the probes of small blocks,
 * and of large ones if these are traced in windows, too; reads the pools and the large blocks that
 * were seen in windows. Where Python's layer is not traced, they are those of the native layer:
 * malloc's probes are in place in windows, and all of malloc's heap is read. Included by
 * user/member/ and user/session/ only.
 */
#ifndef TRACER_MEMBER_WINDOWS_H
#define TRACER_MEMBER_WINDOWS_H

#include <stdint.h>

#include "overhead/governor.h"
#include "overhead/windows.h"
#include "process/threads.h"
#include "process_plan/plan_target.h"
#include "process_plan/plan_text.h"
#include "trial/hit_cost.h"

struct glibc;
struct session;
struct member;

enum member_window {
	WINDOW_NONE,    /* the member is not in that mode, or no window is possible */
	WINDOW_WAITING, /* for the next one */
	WINDOW_OPEN,
	WINDOW_CLOSING, /* the kernel removes the probes */
};

/* A moment: the target's CPU time, the hits of its probes and the tracer's CPU time so far. */
struct window_mark {
	uint64_t time_ns, cpu_ns, hits, own_ns;
};

struct member_windows {
	enum member_window state;
	struct windows windows;
	struct windows_next next;
	struct plan_target plan;  /* with the sites; owned while state is not WINDOW_NONE */
	struct plan_text text;    /* where these sites are */
	uint64_t opened_ns;       /* when the open or last one began; 0: there was none */
	uint64_t dropped_ns;      /* when its links were given to be closed; 0: not yet */
	uint64_t closing_ns;      /* when it is looked whether the kernel is done, or begins */
	size_t site;              /* of text: those before are clear of breakpoints */
	uint64_t marks;           /* the kinds of sites that had breakpoints when it began */
	uint64_t checked_ns;      /* the open window: all blocks from before that were looked at */
	struct threads_time busy; /* when it began; 0: not known */
	int look_first;           /* probes are gone before looks are done: look before, too */
	int foreign;              /* there were breakpoints before ours were placed */
	/* the end of the last one, placing, the beginning, the end */
	struct window_mark after, placing, begin, end;
	double share; /* of the target's CPU time that probes took of late */
	/* the last one, if it is not judged yet: what its probes took; cpu_ns 0 otherwise */
	struct governor_period inside;
	uint64_t look_ns; /* when the pools were last read */
	uint64_t look_took_ns;
	/* the next look at the last window's pools, after its end; 0: none. What these took */
	uint64_t last_after_ns, last_took_ns;
	struct glibc *glibc; /* native: malloc's heap; NULL: not found yet */
	uint64_t walked_ns;  /* when malloc's heap was last walked; 0: never */
	/* address of the pool, and of the large block, from which to read on */
	uint64_t look_from, large_from;
	unsigned int failed; /* windows without probes in a row, since these could not be placed */
	int refused;         /* no further window is possible: the governor takes its next step */
};

/*
 * Can a member with this plan be traced in windows? 0; -ENOTSUP with its reason.
 */
int member_windows_possible(const struct session *session, const struct member *member,
			    const struct plan_target *plan);
/* The same for the native layer: malloc is glibc's, whose heap can be read. */
int member_native_possible(const struct session *session, const struct member *member,
			   const struct plan_target *plan);
/*
 * Can large blocks be traced in windows, too? Then malloc's heap can be asked which of them are
 * still allocated. 0; -ENOTSUP and other errors of glibc_open(), with the reason.
 */
int member_large_possible(const struct member *member);
/* The groups of its probes that are in place in windows only: enum attach_group. */
unsigned int member_window_groups(const struct member *member);
/*
 * The member is in that mode, and its other probes are in place. Takes over the plan. Windows
 * follow from session_windows_due().
 */
void member_windows_begin(struct session *session, struct member *member, struct plan_target *plan);
/*
 * The member is in that mode since now, and the probes of small blocks are in place: the trace has
 * begun a window. Ends it, before member_windows_begin().
 */
void member_windows_take(struct session *session, struct member *member);
/* The other probes are fewer now: the next window is chosen anew. */
void member_windows_again(struct session *session, struct member *member);
/*
 * The member has mapped other files, with the allocators that plan lists: windows of the native
 * layer have their probes, too, from the next one on. May take over plan's list.
 */
void member_windows_extend(struct session *session, struct member *member,
			   struct plan_target *plan);
/* Ends an open window, before a walk or another mode. */
void member_window_close(struct session *session, struct member *member);
/* The member leaves the mode. */
void member_windows_end(struct session *session, struct member *member);
/* Frees what it has, without a record. */
void member_windows_free(struct member *member);
/* Begins and ends the windows that are due, and reads pools. */
void session_windows_due(struct session *session, uint64_t now_ns);
/* Time to the next of these; UINT64_MAX: there is none. */
uint64_t session_windows_left_ns(const struct session *session, uint64_t now_ns);
/*
 * The parts of windows.c:
 * - member_window_is_probed(): are probes of windows in the target's text? From
 *   member_windows.site on, which is moved: sites that were clear stay so.
 * - member_window_is_whole(): are all probes in place still that were when the window began? marks
 *   is what member_window_marks() returned then.
 * - member_look_fresh(): within a window, reads the pools with blocks that no walk has shown: those
 *   that it does not show are dropped at the window's end. What is found after the first probe has
 *   gone may be another block, and is dropped.
 * - member_look_last(): after a window, reads its pools, at twice the time after its end each time:
 *   so it is known how long blocks live, whether that is 10 ms or 200. member_last_begin(): the
 *   window has ended. member_last_due_ns(): when the next one is due; UINT64_MAX: none.
 * - member_look_all(): between windows, reads all pools in turn, as many as there is time for.
 * - member_text_find(): notes where the sites of windows are in the target's text; those that are
 *   not found are taken for clear.
 * - member_window_mark(): this moment, of which only the time is valid without --overhead.
 * - member_window_times_begin(), member_window_busy_ns(): in the open window, as in event_window.
 * - session_phase_enter(): hits cost what they do in that phase from here on; it is steady only if
 *   no window is open or being closed.
 * - member_window_is_dear(): has the open window taken far more than windows do on average?
 * - member_window_judge(): the kernel has removed the probes by now: tells the policy what the last
 *   window has cost.
 */
void member_text_find(struct member *member);
void member_window_times_begin(struct member *member);
uint64_t member_window_busy_ns(const struct member *member);
int member_window_is_probed(struct member *member);
uint64_t member_window_marks(const struct member *member);
int member_window_is_whole(const struct member *member);
void member_look_fresh(struct session *session, struct member *member);
void member_look_last(struct session *session, struct member *member);
void member_last_begin(struct member *member);
uint64_t member_last_due_ns(const struct member *member);
void member_look_all(struct session *session, struct member *member);
/* The same for large blocks: fresh is within a window; returns whether all of them were read. */
int member_large_fresh(struct session *session, const struct member *member);
void member_large_look(struct session *session, struct member *member);
/*
 * The windows are those of the native layer: walks malloc's heap. The first walk says which blocks
 * are older than the trace. 0, -errno.
 */
int member_native_walk(struct session *session, struct member *member);
/*
 * If small blocks are traced in windows: walks malloc's heap, which says how many large ones there
 * are of each size, and which of those that were seen in windows are still allocated. To be called
 * before a heap walk, so that both have shown what is new.
 */
void member_large_walk(struct session *session, const struct member *member);
/* Feeds a record of a look: heap_kinds_opts.record, with a struct member_look. */
struct member_look {
	struct session *session;
	const struct member *member;
	int fresh; /* -ECANCELED unless the window is whole */
};
int member_look_feed(void *look, const void *record, size_t size);
struct window_mark member_window_mark(const struct session *session, const struct member *member);
int member_window_is_dear(const struct session *session, const struct member *member);
void session_phase_enter(struct session *session, enum hit_phase phase);
void member_window_judge(struct session *session, struct member *member,
			 const struct window_mark *now);
/* Is a window of some member open? */
int session_windows_open(const struct session *session);
/* Is a window open or being closed, so that hits are not those of the other probes alone? */
int member_window_busy(const struct member *member);
/* The trace ended a child's window, which it inherited with its parent's tables. 0, -errno. */
int member_window_inherited(struct session *session, struct member *child);

#endif
