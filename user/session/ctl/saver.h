/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a snapshot while tracing continues. A snapshot is a point in time: the process forks, and
 * the child, which holds the tables as of that moment, groups, compresses and writes them. Pages
 * are copied on write, so events are only delayed by the fork, and nothing in the child (a slow or
 * full disk, a reader that does not read) affects the session.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "report/recording/recorder.h"

struct saver;
struct trace;

/* SAVER_AGES: a snapshot that tells how old blocks are. */
enum saver_what { SAVER_SNAPSHOT, SAVER_AGES, SAVER_BLOCKS, SAVER_RECORD };

/* in place of a process index: all processes in one snapshot, or those that run */
#define SAVER_ALL     SIZE_MAX
#define SAVER_RUNNING (SIZE_MAX - 1)

/*
 * Starts writing the snapshot of a process (as of its interpreter's end, if it has ended) to fd, or
 * the lines of one process's blocks (saver.c). The caller may close fd at once. The calling
 * process must be single-threaded. 0; -EAGAIN, -ENOMEM.
 */
int saver_start(struct saver **out, struct trace *trace, enum saver_what what, size_t process,
		int fd);
/* The same for the snapshot of all processes, which is appended to a recording. */
int saver_record(struct saver **out, struct trace *trace, const struct recorder *recorder);
/* Readable when the child is done; for poll(). */
int saver_poll_fd(const struct saver *saver);
uint64_t saver_start_ns(const struct saver *saver); /* CLOCK_MONOTONIC */
/* Waits for the child and frees the saver. 0, or the child's error (with error_set()). */
int saver_finish(struct saver *saver);
/* Kills the child, whatever it has written, and frees the saver. NULL is legal. */
void saver_free(struct saver *saver);
