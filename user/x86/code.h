/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine code that is searched for inlined allocators: where functions begin, what an address
 * holds, and a function's instructions with the way that control gets to each. Internal to the
 * analysis.
 *
 * Instructions are only believed where decoding from the function's start gets to them, since a
 * probe in the midst of one would destroy the program.
 */
#ifndef TRACER_X86_CODE_H
#define TRACER_X86_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "x86/image.h"
#include "x86/insn.h"

#define INLINE_FUNCTION_MAX (1u << 20) /* bytes of a function that are decoded */
#define INLINE_NO_SOURCE    UINT32_MAX
/* bytes of a long jump; of one with a condition more, of a short one fewer */
#define INLINE_LONG_JUMP 5

struct inline_jump {
	uint64_t target, source;
};

struct inline_code {
	const struct inline_image *image;
	struct inline_decoder decoder;
	/* every long jump or branch that is relative, sorted by target */
	struct inline_jump *jumps;
	size_t jump_count;
	/* The function that was decoded last. */
	uint64_t start, end;
	struct inline_insn *insns;
	uint32_t
		/*
		 * index of the one instruction that control comes from, INLINE_NO_SOURCE: not one
		 */
		*source;
	size_t count, room;
};

/* 0 or -ENOMEM; inline_code_close() releases, also after a failure. image is borrowed. */
int inline_code_open(struct inline_code *code, const struct inline_image *image);
void inline_code_close(struct inline_code *code);

/* Up to room instructions from vaddr on, one after the other. Their number. */
size_t inline_code_window(struct inline_code *code, uint64_t vaddr, struct inline_insn *out,
			  size_t room);
/* Decodes the function that vaddr lies in. 0; -ENOENT no function; -ENOMEM. */
int inline_code_function(struct inline_code *code, uint64_t vaddr);
/* Index in the decoded function of the instruction at vaddr, or its count: none begins there. */
size_t inline_code_index(const struct inline_code *code, uint64_t vaddr);
/*
 * From where control comes to the instruction of that index of the decoded function: the addresses
 * of instructions, at most room, or what only looks like a jump to it. Their number; 0: they are
 * more, or the function begins there.
 */
size_t inline_code_sources(const struct inline_code *code, size_t index, uint64_t *out,
			   size_t room);
/*
 * Decodes the function that vaddr lies in, another one, and leaves what was decoded last as it is.
 * 0; -ENOENT no function; -ENOMEM. code must outlive it; inline_code_part_free() releases, also
 * after a failure.
 */
int inline_code_part(const struct inline_code *code, uint64_t vaddr, struct inline_code *out);
void inline_code_part_free(struct inline_code *part);
/* Index of the first of the jumps that leads to vaddr or further. */
size_t inline_code_jump(const struct inline_code *code, uint64_t vaddr);
/*
 * Do only long jumps and branches lead to vaddr, wherever that is: no short ones, and not what is
 * before it?
 */
int inline_code_is_jumped_to(struct inline_code *code, uint64_t vaddr);
/* Where the function at vaddr really begins: behind jumps that are all there is of it. */
uint64_t inline_code_body(struct inline_code *code, uint64_t vaddr);
/* Index of the first of the image's starts that is above vaddr. */
size_t inline_code_start_above(const struct inline_image *image, uint64_t vaddr);
/* Does a function begin at vaddr? */
int inline_code_is_start(const struct inline_code *code, uint64_t vaddr);

#endif
