/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the memory of a Python process from its core file: capture_take() without the process. */
#pragma once

#include "inspect/dump/capture.h"

/*
 * path: the core file. sysroot as core_open(). most_bytes as struct capture_opts. 0; -EINVAL: it is
 * no core file, corrupt, or too short (error_set); -ENOENT: of no Python; -ESTALE, -ENOENT,
 * -EACCES: a file that the process had mapped is needed and not at hand (error_set); -ENOTSUP,
 * -ENODATA, -EDQUOT, -ENOMEM as capture_take(); -errno. *out is the caller's to capture_free(),
 * untouched on failure.
 */
int capture_core(struct capture *out, const char *path, const char *sysroot, uint64_t most_bytes);
