/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other side: finding the session that traces a process, and asking it. Blocks, within a time.
 */
#ifndef TRACER_CONTROL_ASK_H
#define TRACER_CONTROL_ASK_H

#include <sys/types.h>

#include "base/buffer.h"
#include "control/request.h"

#define ASK_TIMEOUT_MS 10000
#define ASK_FOREVER    (-1)

/*
 * Connects to the session that traces pid: to session (a tracer's process id) if that is not 0. The
 * descriptor; or, with error_set(): -ESRCH none does; -EEXIST several do; -EACCES another user's;
 * -errno. directory: of the sockets.
 */
int ask_find(const char *directory, uint32_t pid, pid_t session);
/*
 * Sends a request, passes the descriptor passed along (-1: none) and waits for the answer's line,
 * to which a NUL is added in the place of its end. 0; -ETIMEDOUT; -EPIPE the session has ended;
 * -errno (error_set tells). What answer held is gone.
 */
int ask(int fd, const struct request *request, int passed, int timeout_ms, struct buffer *answer);
/* Waits until the session closes the connection: it has ended. 0, -ETIMEDOUT, -errno. */
int ask_end(int fd, int timeout_ms);

#endif
