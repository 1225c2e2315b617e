/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the kernel a question that requires a probe of our own. A child in a session of its own asks
 * it: the child is not killed together with us, and its end closes the probe. link_keeper.h
 * explains why this process itself neither creates nor closes a link or perf-event uprobe.
 */
#pragma once

/*
 * Returns the value of ask() in the child; ask() leaves its probes open. -ECHILD: the child was
 * killed; -errno.
 */
int trial_child_run(int (*ask)(void *context), void *context);
