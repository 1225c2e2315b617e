/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client side: finds the session that traces a process and sends it requests. Blocks, with a
 * timeout.
 */
#pragma once

#include <sys/types.h>

#include "session/ctl/request.h"
#include "util/buffer.h"

#define ASK_TIMEOUT_MS 10000
#define ASK_FOREVER    (-1)

/*
 * Connects to the session that traces pid. session is the tracer's pid, or 0 for any. Returns a
 * descriptor or, with error_set(): -ESRCH no session does; -EEXIST several do; -EACCES it is
 * another user's; -errno. directory: of the sockets.
 */
int ask_find(const char *directory, uint32_t pid, pid_t session);
/*
 * Sends a request with the descriptor passed (-1: none) and waits for the answer's line, whose line
 * end is replaced by a NUL. The previous content of answer is discarded. 0; -ETIMEDOUT; -EPIPE the
 * session has ended; -errno (with error_set()).
 */
int ask(int fd, const struct request *request, int passed, int timeout_ms, struct buffer *answer);
/*
 * The same without waiting: sends the request; then ask_step() when fd is readable returns 1 once
 * the answer is complete, and 0 until then. Errors as above.
 */
int ask_begin(int fd, const struct request *request, int passed, struct buffer *answer);
int ask_step(int fd, struct buffer *answer);
/*
 * Reads what a session has written to a memfd, from its beginning, in place of the buffer's
 * content. 0; -EMSGSIZE: more than max bytes (error_set); -errno.
 */
int ask_memory_read(int memory, size_t max, struct buffer *out);
/*
 * Waits until the session closes the connection, which means that it has ended. 0, -ETIMEDOUT,
 * -errno.
 */
int ask_end(int fd, int timeout_ms);
