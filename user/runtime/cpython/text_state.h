/* SPDX-License-Identifier: Apache-2.0 */
/* The bit field PyASCIIObject.state of a str. */
#pragma once

#include <stdbool.h>

#include "runtime/cpython/offsets.h"

#define TEXT_COMPACT 1u /* the bits above the kind */
#define TEXT_ASCII   2u

/* Whether the characters are ASCII, and follow at abi->unicode_ascii. */
static inline bool text_is_ascii(const struct abi_offsets *abi, uint64_t state)
{
	state >>= abi->unicode_kind_shift;
	return (state & 7) == 1 &&
	       (state >> 3 & (TEXT_COMPACT | TEXT_ASCII)) == (TEXT_COMPACT | TEXT_ASCII);
}
