/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heaps of jemalloc 5.2.1 to 5.3.1 in another process, however it came into it: a library, or a
 * copy in a program, with a prefix or stripped. It is found by the form of its structures.
 *
 * Not seen: free pages of opt.hpa, blocks that opt.lg_san_uaf_align keeps back (they count as in
 * use).
 */
#pragma once

#include "runtime/malloc/allocator.h"

extern const struct allocator_type jemalloc_allocator;
