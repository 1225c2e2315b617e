/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t timespec_ns(struct timespec time)
{
	return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

/* Reads a clock, in nanoseconds. */
static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return timespec_ns(now);
}

/* The same of a clock that may be gone, as that of a process that has ended. */
static inline int clock_read(clockid_t clock, uint64_t *ns)
{
	struct timespec now;

	if (clock_gettime(clock, &now))
		return -ESRCH;
	*ns = timespec_ns(now);
	return 0;
}
