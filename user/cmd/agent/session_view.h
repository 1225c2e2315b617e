/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session tells the agent's web server. It is asked in rounds: for the sums of all
 * processes, then for the names of stacks that are not known yet. No function waits for it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cmd/tui/groups.h"
#include "cmd/tui/model.h"
#include "session/ctl/request.h"
#include "util/buffer.h"

struct session_view {
	pid_t session; /* 0: there is none, and each round is over at once */
	int fd;        /* the connection; -1: none yet */
	int memory;    /* the memfd that the session writes to */
	bool asking;   /* an answer is awaited */
	bool answers;  /* it has answered in the last round */
	enum request_kind asked;
	uint64_t begun_ns, cpu_ns; /* the round; this process's CPU time by then */
	uint64_t theirs_ns;        /* CPU time that it has taken of the session */
	uint64_t errors;           /* rounds that failed */
	struct watch_model model;
	struct watch_groups groups; /* by line */
	struct buffer answer, data;
};

int session_view_begin(struct session_view *view, pid_t session); /* 0, -errno */
void session_view_end(struct session_view *view);
/* Begins a round, and goes on with it. 1: it is over, and view->answers says how; 0: not yet. */
int session_view_round(struct session_view *view);
/* The same when fd is readable, or wait_ms are over. */
int session_view_step(struct session_view *view);
/* For poll(), while a round is not over. */
int session_view_wait_ms(const struct session_view *view);
/* CPU time that the last round has taken, of both processes. */
uint64_t session_view_cost_ns(const struct session_view *view);
