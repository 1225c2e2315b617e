/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of gperftools' tcmalloc (2.10 to 2.18, 64 bits), of a library or linked in. */
#pragma once

#include "runtime/malloc/allocator.h"

extern const struct allocator_type tcmalloc_allocator;
