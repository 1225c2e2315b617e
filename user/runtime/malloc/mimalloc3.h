/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of mimalloc 3 (3.0 to 3.4, 3.6; 64 bits), of a library or linked in. */
#pragma once

#include "runtime/malloc/allocator.h"

extern const struct allocator_type mimalloc3_allocator;
