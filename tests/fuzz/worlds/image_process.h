/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An order for the process with the false image, on its stdin: a system call. The process writes
 * the result to its stdout.
 */
#ifndef FUZZ_IMAGE_PROCESS_H
#define FUZZ_IMAGE_PROCESS_H

#include <stdint.h>

struct image_order {
	uint64_t call, arguments[6];
};

#endif
