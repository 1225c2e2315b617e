/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One 64-bit mixer for every table of the tracer (finaliser of splitmix64: every input bit reaches
 * every output bit).
 */
#pragma once

#include <stdint.h>

static inline uint64_t hash_u64(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}
