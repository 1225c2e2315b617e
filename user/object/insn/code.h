/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine code that is searched for inlined allocators: function starts, the bytes at an
 * address, and a function's instructions with where control reaches each from. Internal to the
 * analysis.
 *
 * An instruction counts only if decoding from the function's start reaches it: a probe in the
 * middle of an instruction would destroy the program.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "object/insn/image.h"
#include "object/insn/insn.h"
#include "util/id_map.h"

#define INLINE_FUNCTION_MAX (1u << 20) /* bytes of a function that are decoded, at most */
#define INLINE_NO_SOURCE    UINT32_MAX

struct inline_jump {
	uint64_t target, source; /* source: where its instruction begins */
};

struct inline_code {
	const struct inline_image *image;
	struct inline_decoder decoder;
	/* every relative long jump or branch, sorted by target */
	struct inline_jump *jumps;
	size_t jump_count;
	/* the function that was asked for last; valid until another one is */
	uint64_t start, end;
	const struct inline_insn *insns;
	/* for each, the only instruction that control comes from; else INLINE_NO_SOURCE */
	const uint32_t *source;
	size_t count;
	/*
	 * All functions decoded so far, one after the other: several searches ask for the same
	 * ones. When they are too many, they are forgotten.
	 */
	struct inline_insn *kept;
	uint32_t *kept_source;
	size_t kept_count, kept_capacity;
	struct inline_function *functions;
	size_t function_count, function_capacity;
	struct id_map by_start;
};

/* 0 or -ENOMEM; inline_code_close() releases, also after a failure. image is borrowed. */
int inline_code_open(struct inline_code *code, const struct inline_image *image);
void inline_code_close(struct inline_code *code);

/* Decodes up to capacity consecutive instructions from vaddr on. Returns their number. */
size_t inline_code_window(struct inline_code *code, uint64_t vaddr, struct inline_insn *out,
			  size_t capacity);
/* Decodes the function that vaddr lies in. 0; -ENOENT no function; -ENOMEM. */
int inline_code_function(struct inline_code *code, uint64_t vaddr);
/* Index in the decoded function of the instruction at vaddr; code->count: none begins there. */
size_t inline_code_index(const struct inline_code *code, uint64_t vaddr);
/*
 * Stores where control comes from to the instruction of that index in the decoded function:
 * addresses of instructions, or of bytes that only look like a jump to it; at most capacity.
 * Returns their number; 0: there are more, or the function begins there.
 */
size_t inline_code_sources(const struct inline_code *code, size_t index, uint64_t *out,
			   size_t capacity);
/*
 * Decodes another function, that vaddr lies in, into out; the function in code stays. 0; -ENOENT no
 * function; -ENOMEM. code must outlive out; inline_code_part_free() releases, also after a failure.
 */
int inline_code_part(const struct inline_code *code, uint64_t vaddr, struct inline_code *out);
void inline_code_part_free(struct inline_code *part);
/* Index of the first of the jumps whose target is vaddr or above. */
size_t inline_code_jump(const struct inline_code *code, uint64_t vaddr);
/*
 * Is vaddr, in any function, reached by long jumps and branches only: by no short one, and not from
 * the instruction before it?
 */
bool inline_code_is_jumped_to(struct inline_code *code, uint64_t vaddr);
/* The start of the function's body: follows vaddr through functions that are only a jump. */
uint64_t inline_code_body(struct inline_code *code, uint64_t vaddr);
/* Index of the first of the image's starts that is above vaddr. */
size_t inline_code_start_above(const struct inline_image *image, uint64_t vaddr);
/*
 * The function that contains vaddr, from the image's starts; no more than INLINE_FUNCTION_MAX bytes
 * of it. 0; -ENOENT, and the two are untouched: vaddr is not in the text.
 */
int inline_code_range(const struct inline_image *image, uint64_t vaddr, uint64_t *start,
		      uint64_t *end);
/* Does a function begin at vaddr? */
bool inline_code_is_start(const struct inline_code *code, uint64_t vaddr);
