/* SPDX-License-Identifier: Apache-2.0 */
/* glibc's malloc as one of the allocators. */
#pragma once

#include "runtime/malloc/allocator.h"

/* Its state is a struct glibc. A walk also visits blocks with a mapping, if it finds them. */
extern const struct allocator_type glibc_allocator;
