/* SPDX-License-Identifier: Apache-2.0 */
#include "object/insn/insn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/target.h"
#include "object/insn/machine.h"
#include "util/error.h"

int inline_decoder_open(struct inline_decoder *decoder, const struct machine *machine)
{
	decoder->machine = machine;
	if (cs_open(machine->arch, machine->mode, &decoder->capstone) != CS_ERR_OK) {
		decoder->capstone = 0;
		return error_set(-ENOMEM, "no memory for the instruction decoder");
	}
	cs_option(decoder->capstone, CS_OPT_DETAIL, CS_OPT_ON);
	decoder->insn = cs_malloc(decoder->capstone);
	if (decoder->insn)
		return 0;
	inline_decoder_close(decoder);
	return error_set(-ENOMEM, "no memory for the instruction decoder");
}

void inline_decoder_close(struct inline_decoder *decoder)
{
	if (decoder->insn)
		cs_free(decoder->insn, 1);
	if (decoder->capstone)
		cs_close(&decoder->capstone);
	decoder->insn = NULL;
	decoder->capstone = 0;
}

/*
 * A word that this version of Capstone does not know is an instruction, too, where all have the
 * same width: what it may do is decided by the machine.
 */
static size_t word_take(cs_insn *insn, size_t width, const uint8_t *code, size_t bytes,
			uint64_t vaddr)
{
	if (width == 1 || bytes < width)
		return 0;
	insn->id = 0;
	insn->address = vaddr;
	insn->size = (uint16_t)width;
	memcpy(insn->bytes, code, width);
	snprintf(insn->mnemonic, sizeof(insn->mnemonic), ".inst");
	snprintf(insn->op_str, sizeof(insn->op_str), "0x%02x%02x%02x%02x", code[3], code[2],
		 code[1], code[0]);
	return width;
}

size_t inline_decode_one(struct inline_decoder *decoder, const uint8_t *code, size_t bytes,
			 uint64_t vaddr)
{
	const uint8_t *at = code;
	uint64_t address = vaddr;
	size_t left = bytes;

	if (cs_disasm_iter(decoder->capstone, &at, &left, &address, decoder->insn))
		return decoder->insn->size;
	return word_take(decoder->insn, decoder->machine->insn_step, code, bytes, vaddr);
}

size_t inline_decode(struct inline_decoder *decoder, const uint8_t *code, size_t bytes,
		     uint64_t vaddr, struct inline_insn *out)
{
	*out = (struct inline_insn){
		.vaddr = vaddr, .dst = ABI_REG_COUNT, .src = ABI_REG_COUNT, .base = ABI_REG_COUNT};
	if (!inline_decode_one(decoder, code, bytes, vaddr))
		return 0;
	out->bytes = (uint8_t)decoder->insn->size;
	out->emulated = decoder->machine->is_emulated(code, out->bytes);
	decoder->machine->decode(decoder, out);
	return out->bytes;
}

/* The order of operands is a choice on x86-64 only. */
static void decoder_syntax(struct inline_decoder *decoder, size_t syntax)
{
	if (decoder->machine->arch == CS_ARCH_X86)
		cs_option(decoder->capstone, CS_OPT_SYNTAX, syntax);
}

void inline_disassemble(struct inline_decoder *decoder, const uint8_t *code, size_t bytes,
			uint64_t vaddr, char *text, size_t size)
{
	const char *result = "(bad)", *operands = "";

	decoder_syntax(decoder, CS_OPT_SYNTAX_ATT);
	if (inline_decode_one(decoder, code, bytes, vaddr)) {
		result = decoder->insn->mnemonic;
		operands = decoder->insn->op_str;
	}
	snprintf(text, size, "%s%s%s", result, operands[0] ? " " : "", operands);
	/* In that syntax the operands are in the opposite order for decoding, too. */
	decoder_syntax(decoder, CS_OPT_SYNTAX_INTEL);
}
