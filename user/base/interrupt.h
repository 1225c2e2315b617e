/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRACER_BASE_INTERRUPT_H
#define TRACER_BASE_INTERRUPT_H

#include <signal.h>

/*
 * Has somebody asked for the end (SIGINT, SIGTERM, SIGHUP) and not been heard yet? Who attaches
 * blocks these signals and looks for them between two pieces of work; a piece that may be long asks
 * here. Where they are not blocked they end us themselves: 0.
 */
static inline int interrupt_pending(void)
{
	sigset_t set;

	return !sigpending(&set) &&
	       (sigismember(&set, SIGINT) == 1 || sigismember(&set, SIGTERM) == 1 ||
		sigismember(&set, SIGHUP) == 1);
}

#endif
