/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The side of a session that can be talked to (control/request.h) while it traces. Nothing here
 * blocks, and a request costs at most one drain of the ring buffer, one look at the tables and, in
 * census mode, one reading of the heap, with "all" of each (during which the ring buffer is
 * drained): what takes longer is a saver's. A client has one request under way; its next one is
 * read when its answer has been taken.
 */
#ifndef TRACER_CONTROL_CONTROL_H
#define TRACER_CONTROL_CONTROL_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

/* at once; the one that was idle for longest makes room for another */
#define CONTROL_CLIENTS    16u
#define CONTROL_POLLS      (2 * CONTROL_CLIENTS + 1)
#define CONTROL_TIMEOUT_NS 5000000000ull /* for the rest of a line, and for taking an answer */

struct control;
struct trace;

/* What a control needs of its session; processes by their index in the trace. */
struct control_opts {
	const char *directory; /* of the sockets; NULL: PLACE_DIRECTORY */
	struct trace *trace;   /* borrowed */
	/*
	 * Brings the trace up to date; reconcile: also in what a process's heap alone tells. 0,
	 * -errno.
	 */
	int (*refresh)(void *context, size_t process, int reconcile);
	/*
	 * Puts a mark (EVENT_CLEAR, EVENT_RESET_PEAK) of now into the stream of events. 0, -errno.
	 */
	int (*mark)(void *context, size_t process, uint32_t type);
	int (*running)(void *context, size_t process);
	void *context;
};

/* Listens from here on. 0; -errno (error_set tells). */
int control_new(struct control **out, const struct control_opts *opts);
/* Takes the socket away and leaves every client, running savers too. NULL is legal. */
void control_free(struct control *control);

/* What wakes it, for poll(): fills at most CONTROL_POLLS, returns how many. */
size_t control_poll_fds(const struct control *control, struct pollfd *fds);
/*
 * Does what there is to do, at most one request a client. Returns 1 when there is more already,
 * else 0.
 */
int control_serve(struct control *control);
/* Has a client asked for the session's end? Its connection closes when the session has ended. */
int control_stop_wanted(const struct control *control);

#endif
