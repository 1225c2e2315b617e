/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Poisson sampling by bytes: marks lie on the sequence of all bytes that a thread allocates, on
 * average `mean` bytes apart and independent of each other. A block that covers at least one mark
 * is in the sample. So a block of s bytes is in it with the probability 1 - exp(-s / mean),
 * whatever came before. Blocks of 0 bytes count as blocks of 1 byte.
 *
 * In integers, for bpf/; tests/unit/trace/test_sample.c compares the same code with libm.
 */
#pragma once

#include <linux/types.h>

#define SAMPLE_MEAN_MAX (1u << 30) /* bytes */

#define SAMPLE_LN2_BITS 26
#define SAMPLE_LN2      46516320ull /* ln 2 * 2^SAMPLE_LN2_BITS */

/* A block of a sample, in the map `sampled` of bpf/. */
struct sampled_key {
	__u64 address;
	__u32 space_id; /* abi_target.space_id */
	__u32 domain;   /* | SAMPLED_NATIVE */
};

/* the block is malloc's: a block of Python's allocators may have the same address */
#define SAMPLED_NATIVE 0x80000000u

/*
 * -log2(value / 2^32) * 2^32, for value in 1..2^32; at most 4 * 2^-32 too great. Computed bit by
 * bit: squaring a number in [1, 2) doubles its logarithm, and the next bit is 1 if the square is 2
 * or more. There are no branches, since the verifier would follow each of them, nor comparisons,
 * which the compiler makes branches of: the highest bit of a difference says whether it is below
 * 0.
 */
static inline __u64 sample_log2(__u64 value)
{
	__u64 exponent = 32, mantissa = value, log = 0, bit;
	int i;

	for (i = 16; i; i >>= 1) {
		bit = (mantissa - (1ull << (33 - i))) >> 63;
		mantissa <<= bit * i;
		exponent -= bit * i;
	}
	bit = (mantissa - (1ull << 32)) >> 63;
	mantissa <<= bit;
	exponent -= bit;
	mantissa >>= 1; /* of 32 bits, the highest of them set; the one that is dropped is 0 */
	for (i = 0; i < 32; i++) {
		mantissa *= mantissa;
		bit = mantissa >> 63;
		mantissa >>= 31 + bit;
		log = log << 1 | bit;
	}
	return (32ull << 32) - (exponent << 32 | log);
}

/*
 * Bytes up to the next mark: exponential with that mean (at most SAMPLE_MEAN_MAX), rounded down,
 * from a number that is uniform in 0..2^32-1. A block that is longer than the gap covers the mark.
 * Rounding does not change that, since blocks are whole bytes. The result is at most 22.2 means;
 * its error is less than 4e-9 of itself and 1e-9 of the mean.
 */
static inline __u64 sample_gap(__u32 random, __u64 mean)
{
	__u64 means = sample_log2((__u64)random + 1) * SAMPLE_LN2 >> SAMPLE_LN2_BITS; /* * 2^32 */

	return (means >> 32) * mean + ((means & 0xffffffffull) * mean >> 32);
}

/*
 * Does a block of this size cover the next mark? If so, the caller draws a new gap, since the
 * distances between marks are independent.
 */
static inline int sample_covers(__u64 *gap, __u64 bytes)
{
	if (!bytes)
		bytes = 1;
	if (*gap < bytes)
		return 1;
	*gap -= bytes;
	return 0;
}

/*
 * Are faults of this page in the sample? share: the chance of each page, of 2^32.
 * The address decides: what became of a page is known from its last fault, which is in the sample
 * if the one before was. A smaller sample is a part of a larger one.
 */
static inline int sample_takes_page(__u64 address, __u64 bytes, __u64 share)
{
	__u64 x = address / bytes;

	/* the finaliser of splitmix64 */
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	x ^= x >> 31;
	return x >> 32 < share;
}
