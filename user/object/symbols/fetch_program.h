/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches debug files by elfutils' program debuginfod-find(1), where libdebuginfod is not installed
 * or cannot be loaded: a static tracer loads no library. It is told by the environment what the
 * library is told, and has the rights of its caller.
 */
#pragma once

#include <stdbool.h>

bool fetch_program_is_there(void);
/* build_id: in hex. A descriptor; -ENOENT: no server has it, or it was not fetched; -errno. */
int fetch_program_find(const char *build_id);
