/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of lists and dictionaries in a copy of a process that ran on. A container that grew
 * meanwhile has its table in another place than the copy says, and all that it holds seems to be
 * held by nothing. Such containers are read again, with their tables: that takes microseconds,
 * which the copy of all memory does not.
 */
#pragma once

#include "inspect/dump/capture.h"
#include "proc/memory.h"

/*
 * Reads containers again whose tables the copy lacks. refresh(): adds memory that was mapped since
 * (capture_extend()); 0, -errno. *lost: live containers without their table in the copy, since the
 * process ends or moves them all the time. Returns how many were mended; -ESRCH; -EPERM; -ENOMEM.
 */
int tables_mend(struct capture *capture, struct space *space, int (*refresh)(void *context),
		void *context, unsigned int *lost);
