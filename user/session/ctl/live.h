/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session does besides tracing: it answers clients (tracer ctl), writes snapshots at an
 * interval, and records (record.h).
 */
#pragma once

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "session/ctl/control.h"
#include "session/ctl/record.h"
#include "session/ctl/saver.h"
#include "session/session.h"
#include "util/outfile.h"

#define LIVE_POLLS (CONTROL_POLLS + 2)

struct live_opts {
	uint64_t every_ns;          /* 0: no snapshots */
	unsigned int keep;          /* number of snapshots kept */
	const struct outfile *file; /* their file, borrowed; NULL without every_ns */
	const char *name;           /* the file's name, for messages */
};

struct live {
	struct live_opts opts;
	struct session *session; /* borrowed */
	struct control *control; /* NULL: no socket, clients cannot connect */
	struct saver *saver;     /* writes the current snapshot */
	struct outfile *saving;
	uint64_t next_ns;
	struct record record; /* begun by the caller */
};

/*
 * Starts to listen for clients. If that fails, it is reported, and the session continues without.
 */
void live_begin(struct live *live, struct session *session, const struct live_opts *opts);
/* Sets at most LIVE_POLLS entries; returns their number. */
size_t live_poll_fds(const struct live *live, struct pollfd *fds);
/* Call it between two drains. Returns 1 if there is already more to do, else 0. */
int live_step(struct live *live);
int live_stop_wanted(const struct live *live);
/* Waits until the current snapshot is written, so that the last one replaces it. */
void live_finish(struct live *live);
void live_end(struct live *live);
