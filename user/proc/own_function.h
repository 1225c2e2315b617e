/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the file and offset of a function of this program, to place a probe on it in a child. */
#pragma once

#include <stdint.h>

#define OWN_FUNCTION_PATH 64

/*
 * The file, named through map_files so that a rename or removal does not matter, and the offset in
 * it that an address of ours is mapped from. 0, -errno.
 */
int own_function_find(uint64_t address, char path[OWN_FUNCTION_PATH], uint64_t *offset);
