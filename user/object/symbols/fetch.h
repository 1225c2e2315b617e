/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process that fetches debug files from debuginfod servers, by libdebuginfod or else
 * debuginfod-find: it may wait for the network and start threads, which the tracer may not. It has
 * no capabilities, and no descriptor but its socket. The library is loaded there, so that nobody
 * else needs it. What is fetched stays in the cache that all clients of debuginfod share.
 *
 * Fork it before the privileges are dropped, which also forbids it the network.
 */
#pragma once

#include <stdint.h>

struct fetch;

/*
 * urls: servers, as in $DEBUGINFOD_URLS. 0; -ELIBACC: neither is installed; -errno, all
 * with error_set(). fetch_free(NULL) is legal.
 */
int fetch_new(struct fetch **out, const char *urls);
void fetch_free(struct fetch *fetch);
/*
 * Asks for the debug file of a build id, in hex, under a number that the caller chooses. 0;
 * -EAGAIN: too many questions wait; -errno: there is no process any more.
 */
int fetch_ask(struct fetch *fetch, uint32_t number, const char *build_id);
/*
 * The next answer. 0, and in *fd the file, which is the caller's, or why there is none, -errno
 * (-ENOENT: no server has it); -EAGAIN: none by until_ns (CLOCK_MONOTONIC; 0: do not wait); -EIO:
 * there is no process any more.
 */
int fetch_answer(struct fetch *fetch, uint64_t until_ns, uint32_t *number, int *fd);
