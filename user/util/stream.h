/* SPDX-License-Identifier: Apache-2.0 */
/* The end of what was written to a stream. */
#pragma once

#include "util/error.h"
#include <errno.h>
#include <stdio.h>

/*
 * Flushes. 0; -errno: why not all of it could be written. A stream keeps only that a write has
 * failed: for the reason a character is written again, after output that is incomplete anyhow.
 */
static inline int stream_flush(FILE *out)
{
	if (!fflush(out) && !ferror(out))
		return 0;
	errno = 0;
	if (fputc('\n', out) == EOF || fflush(out))
		return errno ? error_errno() : -EIO;
	return -EIO;
}
