/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session does beside tracing while it runs: it answers clients (tracer ctl) and writes
 * snapshots every so often.
 */
#ifndef TRACER_CLI_LIVE_H
#define TRACER_CLI_LIVE_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "base/outfile.h"
#include "control/control.h"
#include "control/saver.h"
#include "session/session.h"

#define LIVE_POLLS (CONTROL_POLLS + 1)

struct live_opts {
	uint64_t every_ns;          /* 0: no snapshots */
	unsigned int keep;          /* of them */
	const struct outfile *file; /* where they go, borrowed; NULL without every_ns */
	const char *name;           /* of it, for messages */
};

struct live {
	struct live_opts opts;
	struct session *session; /* borrowed */
	struct control *control; /* NULL: it cannot be talked to */
	struct saver *saver;     /* of the snapshot that is being written */
	struct outfile *saving;
	uint64_t next_ns;
};

/* Where no client can be listened for, that is said, and the session goes on without. */
void live_begin(struct live *live, struct session *session, const struct live_opts *opts);
/* At most LIVE_POLLS. */
size_t live_poll_fds(const struct live *live, struct pollfd *fds);
/* Between two drains. Returns 1 when there is more to do already, else 0. */
int live_step(struct live *live);
int live_stop_wanted(const struct live *live);
/* Waits for the snapshot that is being written: the last one comes after it. */
void live_finish(struct live *live);
void live_end(struct live *live);

#endif
