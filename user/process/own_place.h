/* SPDX-License-Identifier: Apache-2.0 */
/* Where a function of this very program is, for probes in a child of ours. */
#ifndef TRACER_PROCESS_OWN_PLACE_H
#define TRACER_PROCESS_OWN_PLACE_H

#include <stdint.h>

#define OWN_PLACE_PATH 64

/*
 * The file (by map_files, whatever its name says by now) and the place in it that an address of
 * ours was mapped from. 0, -errno.
 */
int own_place_find(uint64_t address, char path[OWN_PLACE_PATH], uint64_t *offset);

#endif
