/* SPDX-License-Identifier: Apache-2.0 */
/* The same random numbers in each run. */
#pragma once

#include <stdint.h>

static uint64_t random_state = 88172645463325252ull;

static uint32_t below(uint32_t limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 11) % limit;
}
