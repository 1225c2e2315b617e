/* SPDX-License-Identifier: Apache-2.0 */
/* Private to capture.c and capture_again.c: what a running process changes while it is copied. */
#pragma once

#include "inspect/dump/capture.h"
#include "proc/memory.h"

/*
 * Which pages of a piece are copied: exists[i] is 1 for those that have content. Pages without are
 * zero in the copy, as those are that cannot be read. *swapped: how many are left out, since they
 * are swapped out. 0; errors of space_pages().
 */
int piece_pages(struct space *space, uint64_t address, uint32_t pages, uint8_t exists[SPACE_PAGES],
		uint32_t *swapped);
/*
 * Copies again what has changed since the process had run for run_ns (threads_run_ns()), if it has
 * run since. 0; -ESRCH; -EPERM; -ENOMEM.
 */
int capture_again(struct capture *capture, struct space *space, uint64_t run_ns);
