/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compilers emit CFA = rsp + N and CFA = rbp + N. Functions that realign their stack save the CFA
 * and use *(rbp - N); some assembly saves it at *(rsp + N).
 */
#include "unwind/rule.h"

#include <dwarf.h>
#include <stdbool.h>
#include <stdint.h>

/* numbers of registers in the psABI's DWARF */
#define REG_RBP 6
#define REG_RSP 7
#define REG_RA  16

/* Is it "register + offset"? */
static int is_base(const Dwarf_Op *op, uint64_t *reg, int64_t *offset)
{
	if (op->atom == DW_OP_bregx) {
		*reg = op->number;
		*offset = (int64_t)op->number2;
		return 1;
	}
	*reg = op->atom - DW_OP_breg0;
	*offset = (int64_t)op->number;
	return op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31;
}

static int fits_s16(int64_t value)
{
	return value >= INT16_MIN && value <= INT16_MAX;
}

/* 0: no kind has such a CFA. */
static int cfa_set(struct abi_unwind_rule *rule, const Dwarf_Op *ops, size_t count)
{
	int64_t offset, addend = 0;
	uint64_t reg;

	if (!count || !is_base(&ops[0], &reg, &offset) || (reg != REG_RSP && reg != REG_RBP))
		return 0;
	if (count == 1) {
		rule->kind = reg == REG_RSP ? ABI_UNWIND_RSP : ABI_UNWIND_RBP;
		rule->cfa = (int32_t)offset;
		return offset == rule->cfa;
	}
	if (count == 3 && ops[2].atom == DW_OP_plus_uconst)
		addend = (int64_t)ops[2].number;
	else if (count != 2)
		return 0;
	rule->kind = reg == REG_RSP ? ABI_UNWIND_AT_RSP : ABI_UNWIND_AT_RBP;
	rule->cfa = ABI_UNWIND_CFA_AT(offset, addend);
	return ops[1].atom == DW_OP_deref && fits_s16(offset) && fits_s16(addend);
}

/* Is the register saved at CFA + *offset? */
static int is_saved(const Dwarf_Op *ops, size_t count, int64_t *offset)
{
	*offset = count == 2 ? (int64_t)ops[1].number : 0;
	return count && count <= 2 && ops[0].atom == DW_OP_call_frame_cfa &&
	       (count == 1 || ops[1].atom == DW_OP_plus_uconst);
}

/* Is the register saved at *rbp? libdw prefixes expressions with the CFA. */
static int is_at_rbp(const Dwarf_Op *ops, size_t count)
{
	int64_t offset;
	uint64_t reg;

	if (count == 2 && ops[0].atom == DW_OP_call_frame_cfa) {
		ops++;
		count--;
	}
	return count == 1 && is_base(ops, &reg, &offset) && reg == REG_RBP && !offset;
}

/* 0: no kind has such an rbp. */
static int rbp_set(struct abi_unwind_rule *rule, Dwarf_Frame *frame)
{
	Dwarf_Op memory[3], *ops;
	int64_t offset;
	size_t count;

	if (dwarf_frame_register(frame, REG_RBP, memory, &ops, &count))
		return 0;
	if (!count) /* unchanged, or not defined */
		return 1;
	if (is_at_rbp(ops, count)) {
		rule->flags = ABI_UNWIND_RBP_AT_RBP;
		return 1;
	}
	if (!is_saved(ops, count, &offset) || !offset || offset % 8 || !fits_s16(offset / 8))
		return 0;
	rule->rbp = (int16_t)(offset / 8);
	return 1;
}

struct abi_unwind_rule unwind_rule_of(Dwarf_Frame *frame)
{
	struct abi_unwind_rule rule = {0};
	Dwarf_Op memory[3], *ops;
	bool signal = false;
	int64_t offset;
	size_t count;

	dwarf_frame_info(frame, NULL, NULL, &signal);
	if (signal)
		return (struct abi_unwind_rule){.kind = ABI_UNWIND_SIGNAL};
	if (dwarf_frame_register(frame, REG_RA, memory, &ops, &count))
		return UNWIND_RULE_ODD;
	if (!count && ops == memory) /* "undefined" */
		return (struct abi_unwind_rule){.kind = ABI_UNWIND_END};
	if (!is_saved(ops, count, &offset) || offset != -8)
		return UNWIND_RULE_ODD;
	if (dwarf_frame_cfa(frame, &ops, &count) || !cfa_set(&rule, ops, count) ||
	    !rbp_set(&rule, frame))
		return UNWIND_RULE_ODD;
	return rule;
}
