/* SPDX-License-Identifier: Apache-2.0 */
/* Words within bytes that were copied from somewhere, and that need not be aligned. */
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint64_t u64_at(const uint8_t *bytes)
{
	uint64_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

static inline uint32_t u32_at(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}
