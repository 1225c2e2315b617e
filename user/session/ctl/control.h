/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server side of a session (session/ctl/request.h). Nothing here blocks. A request costs at
 * most one drain of the ring buffer, one pass over the tables and, in census mode, one heap walk;
 * with "all", one heap walk for each process (during which the ring buffer is drained). A request
 * of a live view ("sums", "stacks") walks no heap: the session itself does so often enough. Longer
 * work is left to a saver process. A client has one request at a time; its next one is read when
 * its answer has been sent.
 */
#pragma once

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

/* at a time; the client that was idle for longest is closed to admit another */
#define CONTROL_CLIENTS    16u
#define CONTROL_POLLS      (2 * CONTROL_CLIENTS + 1)
#define CONTROL_TIMEOUT_NS 5000000000ull /* to complete a line, and to read an answer */

struct control;
struct sums_facts;
struct trace;

/* Callbacks into the session. A process is named by its index in the trace. */
struct control_opts {
	const char *directory; /* of the sockets; NULL: SOCKET_DIRECTORY */
	struct trace *trace;   /* borrowed */
	/* Brings the trace up to date. reconcile: also walk the process's heap. 0, -errno. */
	int (*refresh)(void *context, size_t process, int reconcile);
	/*
	 * Inserts a mark (EVENT_CLEAR, EVENT_RESET_PEAK) with the current time into the event
	 * stream. 0, -errno.
	 */
	int (*mark)(void *context, size_t process, uint32_t type);
	int (*running)(void *context, size_t process);
	/* What a live view shows of the session. NULL: nothing is known. */
	void (*facts)(void *context, struct sums_facts *out);
	void *context;
};

/* Starts listening. 0; -errno (with error_set()). */
int control_new(struct control **out, const struct control_opts *opts);
/* Removes the socket and closes every client, killing running savers. NULL is legal. */
void control_free(struct control *control);

/* Fills at most CONTROL_POLLS entries for poll(). Returns the number of entries. */
size_t control_poll_fds(const struct control *control, struct pollfd *fds);
/*
 * Serves pending events, at most one request per client. Returns 1 if more may be pending, else 0.
 */
int control_serve(struct control *control);
/*
 * Has a client requested the end of the session? Its connection is closed when the session has
 * ended.
 */
int control_stop_wanted(const struct control *control);
