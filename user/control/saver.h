/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a snapshot while the trace goes on. A snapshot is a point in time: the process is forked,
 * and the child, which holds the tables as they were at that moment, groups, compresses and writes
 * them. The kernel copies what either side changes, so that events are held up for the fork alone,
 * and nothing of the child's (a slow disk, a full one, a reader that does not read) reaches the
 * session.
 */
#ifndef TRACER_CONTROL_SAVER_H
#define TRACER_CONTROL_SAVER_H

#include <stddef.h>
#include <stdint.h>

struct saver;
struct trace;

#define SAVER_ALL SIZE_MAX /* instead of a process's index: all in one snapshot */

/*
 * Begins to write the snapshot of a process (at its interpreter's end, if that has come) to fd,
 * which the caller may close at once. The calling process has one thread. 0; -EAGAIN, -ENOMEM.
 */
int saver_start(struct saver **out, struct trace *trace, size_t process, int fd);
/* Readable when it is done; for poll(). */
int saver_poll_fd(const struct saver *saver);
uint64_t saver_start_ns(const struct saver *saver); /* CLOCK_MONOTONIC */
/* Waits for its end and frees it. 0, or the error with which it ended (error_set tells). */
int saver_finish(struct saver *saver);
/* Ends it, whatever it has written. NULL is legal. */
void saver_free(struct saver *saver);

#endif
