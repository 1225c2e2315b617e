/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of mimalloc 2 (2.0.9 to 2.4, 64 bits), of a library or linked in. */
#pragma once

#include "runtime/malloc/allocator.h"

extern const struct allocator_type mimalloc_allocator;
