/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long reading a process makes us wait. Its maps and memory are read under its mmap lock, which
 * it may keep taken (mprotect() of large mappings in several threads, many threads that map and
 * unmap): then each read waits, and so does the kernel for each probe that is placed or removed. So
 * each process has a share of our time: PATIENCE_SHARE_MS in any PATIENCE_WINDOW_MS, and half of
 * the time that reading it takes. Only time counts in which a system call slept, not that for which
 * it was not scheduled.
 *
 * A system call that waits for the lock cannot be left. So another thread (lock_read.h) reads
 * first: once in PATIENCE_FRESH_MS, each time if the process has made us wait for long lately, and
 * again as long as its read waits for long. What it waits counts; if a read does not return within
 * a second, nothing is read here.
 *
 * Once the user waits for our end, a process that has made us wait for long lately is read only if
 * some more tries in a row find its lock free. The first tries take PATIENCE_END_MS together, or a
 * few ms each, and those tries about as long again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PATIENCE_SHARE_MS  1000
#define PATIENCE_WINDOW_MS 10000
#define PATIENCE_FRESH_MS  1000
#define PATIENCE_END_MS    200

/* the same as PATIENCE_FRESH_MS, once the user waits for our end */
#define PATIENCE_END_FRESH_MS 50

/* A system call that may wait for the lock. */
struct patience {
	pid_t pid;
	uint64_t began_ns;
	uint64_t
		awake_ns; /* sched_time_ns(), of a process that has made us wait; else UINT64_MAX */
	long sleeps;
};

/*
 * Call before such a system call. 0, and then patience_end() after it; -ETIMEDOUT, with
 * error_set(): its share is used up; -EINTR: reading it is slow, and we are to end.
 */
int patience_begin(struct patience *patience, pid_t pid);
void patience_end(const struct patience *patience);
/*
 * Between two such system calls that have a common patience_begin() and patience_end(): counts what
 * the first has waited. As patience_begin(). If it fails, patience_end() is called all the same.
 */
int patience_renew(struct patience *patience);
/*
 * An error of reading it: -ETIMEDOUT, with the reason, if its share is used up, else err, whose
 * reason is kept.
 */
int patience_explain(pid_t pid, int err);
/*
 * How long one wait for its lock takes, now or some seconds ago; 0: none. The mean of some tries
 * or, if it keeps the lock for long again and again, the longest. If one of five tries waits, up to
 * ten more follow, and the longest does not count: on a busy machine whoever had the lock may have
 * had no processor once. What the kernel waits is this for each of a thousand probes.
 */
uint64_t patience_wait_ns(pid_t pid);
/* The process that runs and made us wait for most of the time lately; 0: none. */
pid_t patience_slow(void);

/*
 * From this time of CLOCK_MONOTONIC on the user waits for our end, at the latest. A signal that is
 * pending (util/interrupt.h) says that, too.
 */
void patience_end_at(uint64_t time_ns);
/* Does the user wait for our end? */
bool patience_is_ending(void);
