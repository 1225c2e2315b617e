/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF"): without the key the hash
 * tells nothing about the bytes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
	uint64_t words[2];
};

/* Of bytes, in the paper's byte order. */
uint64_t siphash(const struct siphash_key *key, const void *data, size_t bytes);
