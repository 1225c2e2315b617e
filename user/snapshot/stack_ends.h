/* SPDX-License-Identifier: Apache-2.0 */
/* Where the native stacks of a snapshot end: whole ones at the outermost frame, others before. */
#pragma once

#include <stdint.h>

#include "abi/unwind.h"

#define STACK_ENDS_REASONS 16u /* spare entries included */
#define STACK_ENDS_FILES   3u  /* those that cut the most stacks */
#define STACK_ENDS_PATH    104u

struct stack_ends {
	uint64_t whole;
	/*
	 * of the live blocks that these stacks allocated: requested bytes, of the sample if there
	 * is one
	 */
	uint64_t whole_bytes, cut_bytes;
	uint64_t reasons[STACK_ENDS_REASONS]; /* by enum abi_unwind_end */
	/* Files in whose code stacks are cut. With many files the counts are lower bounds. */
	struct stack_ends_file {
		char path[STACK_ENDS_PATH]; /* "": none; its end, if it is longer */
		uint64_t stacks;
	} files[STACK_ENDS_FILES];
};

/* A stack that was cut in code of this file. */
void stack_ends_cut(struct stack_ends *ends, uint32_t reason, const char *file);
void stack_ends_add(struct stack_ends *sum, const struct stack_ends *one);
uint64_t stack_ends_cut_count(const struct stack_ends *ends);
/* A few words; NULL: no such reason. Static. */
const char *stack_ends_reason(uint32_t reason);
