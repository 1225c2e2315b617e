/* SPDX-License-Identifier: Apache-2.0 */
/* What a session does without on this kernel, in the words of who reads the figures. Pure. */
#ifndef TRACER_ATTACH_FEATURES_MISSING_H
#define TRACER_ATTACH_FEATURES_MISSING_H

#include <stddef.h>

#include "attach/features.h"

#define FEATURES_MISSING_ROOM 512u /* enough for all of it */

/*
 * "kernel 6.1.0 has no uprobe sessions: …; no …", cut to room bytes with the NUL; "" where nothing
 * is missing. Returns how many things are missing.
 */
size_t features_missing(const struct features *features, char *out, size_t room);

#endif
