/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A live view of a running session, as one of its clients: `tracer ctl PID watch`, and the process
 * that `tracer trace` starts for it on a terminal. It asks the session for sums by stack once a
 * second, or less often where that would take more than 1 % of a CPU.
 */
#pragma once

#include "snapshot/ages.h"

struct watch_opts {
	int session;  /* the connection to the session, borrowed */
	int end;      /* the view ends when this is closed at the other end; -1: none */
	int messages; /* a file whose last line is shown when it is new; -1: none */
	int ends_session;
	int by_age;       /* it begins with the columns of ages */
	struct ages ages; /* only blocks of these, at each refresh; in ms, to 49 days */
};

enum watch_end {
	WATCH_END_QUIT,    /* by the user */
	WATCH_END_SESSION, /* the session has ended, or opts.end */
};

/*
 * Draws on the terminal until the user quits. enum watch_end; -ENOTTY: no terminal on which a
 * cursor can be placed; -errno (error_set). The terminal is as before.
 */
int watch_run(const struct watch_opts *opts);
