/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function may jump to another one's start, but into the middle of another entry of .eh_frame
 * only if that is a part of the function itself.
 */
#include "probe/malloc/loop_code.h"

#include <stdlib.h>
#include <string.h>

#include "object/elf/elf_frames.h"
#include "object/insn/insn.h"
#include "object/insn/machine.h"
#include "util/sorted.h"

#define FUNCTION "_PyEval_EvalFrameDefault"

struct loop_code_search {
	const struct abi_code *loop;
	uint64_t *starts; /* of the entries, sorted */
	size_t count;
	struct abi_code *cold;
};

/* Is the function's other part at the target of this jump? 1, 0. */
static bool is_part(struct loop_code_search *search, uint64_t target)
{
	size_t above = keys_above(search->starts, search->count, target);

	if (!above || above == search->count || target - search->loop->start < search->loop->bytes)
		return 0;
	uint64_t start = search->starts[above - 1];
	if (start == target || search->starts[above] - start > LOOP_CODE_BYTES_MAX)
		return 0;
	*search->cold = (struct abi_code){start, search->starts[above] - start};
	return 1;
}

static void cold_find(struct loop_code_search *search, const uint8_t *code)
{
	uint64_t bytes = search->loop->bytes, start = search->loop->start;
	struct inline_decoder decoder;
	struct inline_insn insn;
	size_t length;

	if (inline_decoder_open(&decoder, machine_own()))
		return;
	for (uint64_t at = 0; at < bytes; at += length) {
		length = inline_decode(&decoder, code + at, bytes - at, start + at, &insn);
		if (!length)
			break;
		if ((insn.op == INLINE_BRANCH || insn.op == INLINE_JUMP) &&
		    is_part(search, insn.target))
			break;
	}
	inline_decoder_close(&decoder);
}

void loop_code_find(struct elf_file *file, struct abi_code out[ABI_LOOP_CODES])
{
	struct loop_code_search search = {.loop = &out[0], .cold = &out[1]};
	struct elf_symbol symbol;

	memset(out, 0, ABI_LOOP_CODES * sizeof(*out));
	if (elf_file_symbol(file, FUNCTION, &symbol) || !symbol.size ||
	    symbol.size > LOOP_CODE_BYTES_MAX)
		return;
	out[0] = (struct abi_code){symbol.vaddr, symbol.size};
	uint8_t *code = malloc(symbol.size);
	if (code && elf_file_read(file, symbol.vaddr, code, symbol.size) == (int)symbol.size &&
	    !elf_frames_starts(file, &search.starts, &search.count)) {
		qsort(search.starts, search.count, sizeof(*search.starts), key_compare);
		cold_find(&search, code);
	}
	free(search.starts);
	free(code);
}
