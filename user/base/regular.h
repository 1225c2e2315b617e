/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular files under names that are not to be trusted. What a name means is seen before it is
 * opened: a FIFO would be waited for, and to open a device may do something.
 */
#ifndef TRACER_BASE_REGULAR_H
#define TRACER_BASE_REGULAR_H

#include <stdint.h>

/*
 * resolve: as openat2() has it, RESOLVE_…; 0 follows every link. A descriptor to read from; -EINVAL
 * no regular file; -errno.
 */
int regular_open(int directory, const char *path, uint64_t resolve);
/* The same of a descriptor with O_PATH, which stays open. */
int regular_reopen(int path_fd);

#endif
