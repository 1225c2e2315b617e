/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens regular files by untrusted names. The file type is checked before the file is opened:
 * opening a FIFO would block, and opening a device may have side effects.
 */
#ifndef TRACER_BASE_REGULAR_H
#define TRACER_BASE_REGULAR_H

#include <stdint.h>

/*
 * resolve: flags of openat2(), RESOLVE_…; 0 follows every link. Returns a descriptor for reading;
 * -EINVAL: not a regular file; -errno.
 */
int regular_open(int directory, const char *path, uint64_t resolve);
/* The same for a descriptor opened with O_PATH, which stays open. */
int regular_reopen(int path_fd);

#endif
