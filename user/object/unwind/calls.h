/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of machine code may be a call or a system call. Every call is found, and some bytes
 * that only look like one: decoding all instructions takes twenty times as long, and needs to know
 * where functions begin.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Code of a file, from one executable segment. */
struct unwind_code {
	uint64_t vaddr, offset; /* of the first byte; offset in the file */
	size_t size;
	const uint8_t *bytes;
};

#define UNWIND_CODE_MAX 64u /* segments */

struct unwind_codes {
	struct unwind_code parts[UNWIND_CODE_MAX];
	size_t count;
	int is_arm64;
};

/*
 * Does a call, whose target lies in one of the codes or is computed, or a system call lie within
 * [start, end) of a part? The range is within the part; bounds are vaddrs. Pure.
 */
int unwind_calls_within(const struct unwind_codes *codes, const struct unwind_code *part,
			uint64_t start, uint64_t end);
