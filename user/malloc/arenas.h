/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the room: the arenas and heaps of glibc_look(). */
#ifndef TRACER_MALLOC_ARENAS_H
#define TRACER_MALLOC_ARENAS_H

#include "malloc/glibc.h"

/*
 * Replaces glibc's arenas and heaps. 0; -ENOTSUP: what is there contradicts the layout (error_set);
 * -EFAULT; -ESRCH; -ENOMEM.
 */
int glibc_arenas_read(struct glibc *glibc, const struct process_maps *maps);

#endif
