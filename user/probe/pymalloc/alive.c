/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code is searched as bytes, because decoding all of it would take a second. A call, or an operand
 * that is an address, refers to a function's first byte, which bytes that only look like one hardly
 * ever do. A jump may lead into the middle of a function (of a part that was split off). It counts
 * if decoding its own function reaches it. A function that is wrongly kept does no harm: its probes
 * are never hit.
 */
#include "probe/pymalloc/alive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/insn/code.h"
#include "object/insn/machine.h"

#define WORD         sizeof(uint64_t)
#define OPERANDS_MAX 6 /* bytes */

static bool is_old(const struct inline_alive *alive, uint64_t vaddr)
{
	return vaddr - alive->old.vaddr < alive->old.bytes;
}

/* Index of the start of the function that vaddr lies in, or the number of starts. */
static size_t function_of(const struct inline_alive *alive, uint64_t vaddr)
{
	size_t above = inline_code_start_above(alive->image, vaddr);

	return above ? above - 1 : alive->image->start_count;
}

static uint64_t function_end(const struct inline_alive *alive, size_t function)
{
	const struct inline_image *image = alive->image;
	uint64_t end = alive->old.vaddr + alive->old.bytes;

	return function + 1 < image->start_count && image->starts[function + 1] < end
		       ? image->starts[function + 1]
		       : end;
}

/* Does decoding its function lead to the instruction at vaddr? */
static int is_instruction(struct inline_alive *alive, uint64_t vaddr)
{
	const struct inline_range *text = &alive->image->text;
	size_t function = function_of(alive, vaddr);
	struct inline_insn insn;
	uint64_t at;

	if (function == alive->image->start_count ||
	    vaddr - alive->image->starts[function] > INLINE_FUNCTION_MAX)
		return 0;
	for (at = alive->image->starts[function]; at < vaddr; at += insn.bytes)
		if (!inline_decode(&alive->decoder, text->code + (at - text->vaddr),
				   text->bytes - (size_t)(at - text->vaddr), at, &insn))
			return 0;
	return at == vaddr;
}

/*
 * Marks the function at target, which something refers to: to its start or, if jump is not 0, by
 * the jump at that address.
 */
static void reach(struct inline_alive *alive, uint64_t target, uint64_t jump)
{
	if (!is_old(alive, target))
		return;
	size_t function = function_of(alive, target);
	if (function == alive->image->start_count || alive->reached[function])
		return;
	if (alive->image->starts[function] != target && !(jump && is_instruction(alive, jump)))
		return;
	alive->reached[function] = 1;
	alive->pending[alive->pending_count++] = function;
}

/* Bytes from the ModRM byte to the immediate that follows the operands. */
static size_t operands_bytes(uint8_t modrm)
{
	unsigned mod = modrm >> 6, rm = modrm & 7;

	if (mod == 3)
		return 1;
	if (!mod)
		return rm == 4 ? 2 : rm == 5 ? 5 : 1;
	return (mod == 1 ? 2u : 5u) + (rm == 4);
}

/*
 * Can the 32 bits at that index be an immediate: of a mov into a register or memory, a push, a
 * comparison?
 */
static bool is_immediate(const uint8_t *code, size_t index)
{
	uint8_t op = code[index - 1];

	if ((op & 0xf8) == 0xb8 || op == 0x68 || op == 0x3d)
		return 1;
	for (size_t bytes = 1; bytes <= OPERANDS_MAX && bytes < index; bytes++) {
		op = code[index - bytes - 1];
		if ((op == 0xc7 || op == 0x81) && operands_bytes(code[index - bytes]) == bytes)
			return 1;
	}
	return 0;
}

static void code_search(struct inline_alive *alive, uint64_t start, uint64_t end)
{
	const struct inline_range *text = &alive->image->text;
	const uint8_t *code = text->code + (start - text->vaddr);
	size_t bytes = (size_t)(end - start);

	for (size_t i = 1; i + 4 <= bytes; i++) {
		uint64_t at = start + i, target;
		uint8_t op = code[i - 1];
		int is_branch = i > 1 && (op & 0xf0) == 0x80 && code[i - 2] == 0x0f;
		int32_t distance;

		memcpy(&distance, code + i, sizeof(distance));
		target = at + 4 + (uint64_t)(int64_t)distance;
		if (op == 0xe9 || is_branch)
			reach(alive, target, at - 1 - (uint64_t)is_branch);
		else if (op == 0xe8 || (i > 1 && (op & 0xc7) == 5 && code[i - 2] == 0x8d))
			reach(alive, target, 0);
		else if (is_old(alive, (uint32_t)distance) && is_immediate(code, i))
			reach(alive, (uint32_t)distance, 0);
	}
}

int inline_alive_open(struct inline_alive *alive, const struct inline_image *image,
		      const struct inline_range *old)
{
	const struct inline_range *text = &image->text;

	*alive = (struct inline_alive){.image = image, .old = *old};
	alive->reached = calloc(image->start_count + 1, sizeof(*alive->reached));
	alive->pending = calloc(image->start_count + 1, sizeof(*alive->pending));
	if (!alive->reached || !alive->pending)
		return -ENOMEM;
	if (inline_decoder_open(&alive->decoder, machine_own()))
		return -ENOMEM;
	code_search(alive, text->vaddr, old->vaddr);
	code_search(alive, old->vaddr + old->bytes, text->vaddr + text->bytes);
	return 0;
}

void inline_alive_close(struct inline_alive *alive)
{
	inline_decoder_close(&alive->decoder);
	free(alive->reached);
	free(alive->pending);
	*alive = (struct inline_alive){0};
}

void inline_alive_data(struct inline_alive *alive, const struct inline_range *data)
{
	for (size_t i = (size_t)(-data->vaddr % WORD); i + WORD <= data->bytes; i += WORD) {
		uint64_t word;

		memcpy(&word, data->code + i, sizeof(word));
		reach(alive, word, 0);
	}
}

void inline_alive_finish(struct inline_alive *alive, uint8_t *text)
{
	const struct inline_image *image = alive->image;

	while (alive->pending_count) {
		size_t function = alive->pending[--alive->pending_count];

		code_search(alive, image->starts[function], function_end(alive, function));
	}
	for (size_t i = 0; i < image->start_count; i++)
		if (is_old(alive, image->starts[i]) && !alive->reached[i])
			memset(text + (image->starts[i] - image->text.vaddr), INLINE_DEAD,
			       (size_t)(function_end(alive, i) - image->starts[i]));
}
