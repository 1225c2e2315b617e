/* SPDX-License-Identifier: Apache-2.0 */
/* The size of this kernel's pages: 4 KiB on x86-64; 4, 16 or 64 KiB on arm64. */
#pragma once

#include <stdint.h>
#include <unistd.h>

static inline uint64_t page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}
