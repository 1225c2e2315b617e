/* SPDX-License-Identifier: Apache-2.0 */
/* mimalloc 3.0 to 3.6, in the form of allocator.h. */
#pragma once

#include "runtime/malloc/allocator.h"

extern const struct allocator_type mimalloc3_allocator;
