/* SPDX-License-Identifier: Apache-2.0 */
/* Describes what a session lacks on this kernel, in terms of its reports. Pure. */
#pragma once

#include <stddef.h>

#include "attach/links/features.h"

#define FEATURES_MISSING_SIZE 512u /* enough for the whole text */

/*
 * Writes "kernel 6.1.0 has no uprobe sessions: …; no …", truncated to capacity bytes including the
 * NUL; "" if nothing is missing. Returns the number of missing features.
 */
size_t features_missing(const struct features *features, char *out, size_t capacity);
