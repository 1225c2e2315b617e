/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of musl's malloc (mallocng, musl 1.2.1 and later, x86-64), of a library or linked in. */
#pragma once

#include "runtime/malloc/allocator.h"

extern const struct allocator_type musl_allocator;
