/* SPDX-License-Identifier: Apache-2.0 */
/* The registers' rules at one address of call frame information, as a rule of an unwind table. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/unwind.h"

/* Numbers of registers in the DWARF of a machine's ABI. */
struct cfi_registers {
	uint8_t frame, stack, ra; /* rbp, rsp, the return address; x29, sp, x30 */
};

#define CFI_RBP_X86  6
#define CFI_RSP_X86  7
#define CFI_RA_X86   16
#define CFI_RA_ARM64 30

/*
 * A rule without a kind that is not rule 0: the address is covered, but no kind can express how
 * its frame is unwound, for example a CFA that is relative to r10.
 */
#define UNWIND_RULE_ODD ((struct abi_unwind_rule){.cfa = -1})

/* Where the caller's value of a register is. */
struct cfi_saved {
	enum { CFI_SAME, CFI_UNDEFINED, CFI_AT_CFA, CFI_AT_RBP, CFI_OTHER } kind;
	int64_t offset; /* CFI_AT_CFA: at CFA + offset */
};

struct cfi_state {
	/*
	 * register + offset; what is at another register + offset, + addend; rsp + 8, or 16 from
	 * byte cfa_offset of a stub on; or something else
	 */
	enum { CFI_CFA_OTHER, CFI_CFA_REGISTER, CFI_CFA_AT, CFI_CFA_STUB } cfa;
	uint64_t cfa_register, at_register;
	int64_t cfa_offset, at_offset, at_addend;
	struct cfi_saved rbp, ra;
	struct cfi_registers registers;
};

/* Recognise a DWARF expression without evaluating it. */
void cfi_state_set_cfa(struct cfi_state *state, const uint8_t *expression, size_t bytes);
struct cfi_saved cfi_saved_at(const struct cfi_state *state, const uint8_t *expression,
			      size_t bytes);

/* UNWIND_RULE_ODD if no kind expresses it. */
struct abi_unwind_rule cfi_state_rule(const struct cfi_state *state);
static inline int unwind_rule_equal(struct abi_unwind_rule a, struct abi_unwind_rule b)
{
	return a.cfa == b.cfa && a.rbp == b.rbp && a.kind == b.kind && a.flags == b.flags;
}
