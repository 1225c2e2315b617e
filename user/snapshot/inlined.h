/* SPDX-License-Identifier: Apache-2.0 */
/* Native stacks as the processor has them: without the functions that are inlined into others. */
#pragma once

#include "snapshot/snapshot.h"

/*
 * Removes inlined frames from all tracebacks. A traceback that was cut within inlined frames keeps
 * its last one. Tracebacks may be equal afterwards.
 */
void snapshot_inlined_drop(struct snapshot *snapshot);
