/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compilers emit CFA = rsp + N and CFA = rbp + N. Functions that realign their stack save the CFA
 * and use *(rbp - N), with the caller's rbp at *rbp; some assembly saves it at *(rsp + N). Linkers
 * describe the stubs of a PLT, of 16 bytes each, by one expression: each pushes a number.
 */
#include "object/unwind/rule.h"

#include <string.h>

#include "util/elf_reader.h"

/* operations of DWARF expressions */
#define OP_DEREF       0x06
#define OP_PLUS_UCONST 0x23
#define OP_BREG0       0x70 /* register 0 + a signed number */

/* rsp + 8 + (((rip & 15) >= N) << 3), with N as a literal. */
static const uint8_t stub[] = {0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x30, 0x2a, 0x33, 0x24, 0x22};

#define STUB_LITERAL 6 /* its index */
#define OP_LIT0      0x30

static int stub_set(struct cfi_state *state, const uint8_t *expression, size_t bytes)
{
	unsigned literal =
		bytes == sizeof(stub) ? expression[STUB_LITERAL] - (unsigned)OP_LIT0 : 16u;

	if (literal >= 16 || memcmp(expression, stub, STUB_LITERAL) != 0 ||
	    memcmp(expression + STUB_LITERAL + 1, stub + STUB_LITERAL + 1,
		   sizeof(stub) - STUB_LITERAL - 1) != 0)
		return 0;
	state->cfa = CFI_CFA_STUB;
	state->cfa_offset = literal;
	return 1;
}

void cfi_state_set_cfa(struct cfi_state *state, const uint8_t *expression, size_t bytes)
{
	struct elf_reader reader = {.bytes = expression, .end = bytes};

	if (state->registers.ra == CFI_RA_X86 && stub_set(state, expression, bytes))
		return;
	state->at_register = (uint64_t)elf_take_byte(&reader) - OP_BREG0;
	state->at_offset = elf_take_sleb(&reader);
	state->at_addend = 0;
	state->cfa = elf_take_byte(&reader) == OP_DEREF ? CFI_CFA_AT : CFI_CFA_OTHER;
	if (reader.at < reader.end) {
		if (elf_take_byte(&reader) != OP_PLUS_UCONST)
			state->cfa = CFI_CFA_OTHER;
		state->at_addend = (int64_t)elf_take_uleb(&reader);
	}
	if (reader.failed || reader.at < reader.end)
		state->cfa = CFI_CFA_OTHER;
}

struct cfi_saved cfi_saved_at(const struct cfi_state *state, const uint8_t *expression,
			      size_t bytes)
{
	struct elf_reader reader = {.bytes = expression, .end = bytes};
	int is_rbp = elf_take_byte(&reader) == OP_BREG0 + state->registers.frame &&
		     !elf_take_sleb(&reader);

	is_rbp &= !reader.failed && reader.at == reader.end;
	return (struct cfi_saved){.kind = is_rbp ? CFI_AT_RBP : CFI_OTHER};
}

static int fits_s16(int64_t value)
{
	return value >= INT16_MIN && value <= INT16_MAX;
}

/* 0: no kind has such a CFA. */
static int cfa_set(struct abi_unwind_rule *rule, const struct cfi_state *state)
{
	int is_at = state->cfa == CFI_CFA_AT;
	uint64_t reg = is_at ? state->at_register : state->cfa_register;

	if (state->cfa == CFI_CFA_STUB) {
		rule->kind = ABI_UNWIND_STUB;
		rule->cfa = (int32_t)state->cfa_offset;
		return 1;
	}
	if (state->cfa == CFI_CFA_OTHER ||
	    (reg != state->registers.stack && reg != state->registers.frame))
		return 0;
	if (is_at) {
		rule->kind = reg == state->registers.stack ? ABI_UNWIND_AT_RSP : ABI_UNWIND_AT_RBP;
		rule->cfa = ABI_UNWIND_CFA_AT(state->at_offset, state->at_addend);
		return fits_s16(state->at_offset) && fits_s16(state->at_addend);
	}
	rule->kind = reg == state->registers.stack ? ABI_UNWIND_RSP : ABI_UNWIND_RBP;
	rule->cfa = (int32_t)state->cfa_offset;
	return state->cfa_offset == rule->cfa;
}

/* 0: no kind has such an rbp. */
static int rbp_set(struct abi_unwind_rule *rule, struct cfi_saved rbp)
{
	switch (rbp.kind) {
	case CFI_SAME:
	case CFI_UNDEFINED:
		return 1;
	case CFI_AT_RBP:
		rule->flags = ABI_UNWIND_RBP_AT_RBP;
		return 1;
	case CFI_AT_CFA:
		rule->rbp = (int16_t)(rbp.offset / 8);
		return rbp.offset && rbp.offset % 8 == 0 && fits_s16(rbp.offset / 8);
	default:
		return 0;
	}
}

/*
 * The return address is a register that the function may have stored: beside the frame pointer, or
 * alone. 0: elsewhere, or not stored, as in a leaf function.
 */
static int link_set(struct abi_unwind_rule *rule, const struct cfi_state *state)
{
	struct cfi_saved at = state->rbp;

	if (state->ra.kind != CFI_AT_CFA)
		return 0;
	if (at.kind == CFI_AT_CFA)
		return state->ra.offset == at.offset + 8 && rbp_set(rule, at);
	rule->flags = ABI_UNWIND_RETURN_ALONE;
	return (at.kind == CFI_SAME || at.kind == CFI_UNDEFINED) && rbp_set(rule, state->ra);
}

struct abi_unwind_rule cfi_state_rule(const struct cfi_state *state)
{
	struct abi_unwind_rule rule = {0};

	if (state->ra.kind == CFI_UNDEFINED)
		return (struct abi_unwind_rule){.kind = ABI_UNWIND_END};
	if (state->registers.ra == CFI_RA_ARM64)
		return cfa_set(&rule, state) && link_set(&rule, state) ? rule : UNWIND_RULE_ODD;
	if (state->ra.kind != CFI_AT_CFA || state->ra.offset != -8 || !cfa_set(&rule, state) ||
	    !rbp_set(&rule, state->rbp))
		return UNWIND_RULE_ODD;
	return rule;
}
