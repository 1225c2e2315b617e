/* SPDX-License-Identifier: Apache-2.0 */
/* Collectors in the memory of a running process, without a copy of it. */
#pragma once

#include "inspect/graph/collector.h"
#include "proc/memory.h"

/*
 * Of the process that an image is of, or of one that has the same memory since it was forked; space
 * and image are borrowed. Once it has ended, all figures are 0.
 */
struct collector_source collector_source_live(struct space *space, const struct image *image);
