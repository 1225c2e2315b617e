/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the process with the lying image is told on its stdin: a system call, whose result it
 * answers on its stdout.
 */
#ifndef FUZZ_IMAGE_PROCESS_H
#define FUZZ_IMAGE_PROCESS_H

#include <stdint.h>

struct image_order {
	uint64_t call, arguments[6];
};

#endif
