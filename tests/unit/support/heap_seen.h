/* SPDX-License-Identifier: Apache-2.0 */
/* What a heap walk has reported. */
#pragma once

#include <string.h>

struct seen {
	uint64_t known, blocks, bytes;
	uint32_t known_bytes;
	uint64_t known_size; /* ob_size of the object there */
	uint64_t stop_after;
};

static inline int see(uint64_t address, uint64_t bytes, const uint8_t *content, void *context)
{
	struct seen *seen = context;

	seen->blocks++;
	seen->bytes += bytes;
	if (address == seen->known) {
		seen->known_bytes = bytes;
		memcpy(&seen->known_size, content + 16, sizeof(seen->known_size));
	}
	return seen->blocks == seen->stop_after;
}
