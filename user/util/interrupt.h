/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <signal.h>

/*
 * Whether a request to end (SIGINT, SIGTERM, SIGHUP) is pending. Commands that attach block these
 * signals and check for them between two pieces of work; a piece of work that may take long checks
 * here. Where the signals are not blocked they terminate the process: 0.
 */
static inline int interrupt_pending(void)
{
	sigset_t set;

	return !sigpending(&set) &&
	       (sigismember(&set, SIGINT) == 1 || sigismember(&set, SIGTERM) == 1 ||
		sigismember(&set, SIGHUP) == 1);
}
