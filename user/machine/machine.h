/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the planner needs to know of a machine: its instructions, as the kernel and as Capstone see
 * them, and how its functions are called. Pure.
 */
#ifndef TRACER_MACHINE_MACHINE_H
#define TRACER_MACHINE_MACHINE_H

#include <capstone/capstone.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/target.h"
#include "machine/insn.h"

#define MACHINE_ARGUMENTS 6

struct machine {
	const char *name;
	/* Capstone's */
	cs_arch arch;
	cs_mode mode;
	uint8_t insn_step; /* instructions begin at multiples of it */
	/* enum abi_register */
	uint8_t stack_pointer;
	/* holds the return address at a function's entry; ABI_REG_COUNT: it is on the stack */
	uint8_t link_register;
	uint8_t result;
	uint8_t arguments[MACHINE_ARGUMENTS];
	/*
	 * Does the kernel emulate (simulate) this instruction when it is probed, instead of
	 * single-stepping it with a second trap?
	 */
	bool (*is_emulated)(const uint8_t *code, size_t bytes);
	/* Is it known that it can be probed, in whatever way? */
	bool (*may_be_probed)(const cs_insn *insn);
	/* Bit r: the instruction may write enum abi_register r; all: not known. */
	uint32_t (*registers_written)(csh capstone, const cs_insn *insn);
	/* "rax" for ABI_REG_AX. Static. */
	const char *(*register_name)(uint32_t reg);
	/* Does it copy a whole register to another? */
	bool (*copies)(const cs_insn *insn, uint32_t *to, uint32_t *from);
	/* May control continue elsewhere than at the next instruction? */
	bool (*leaves)(csh capstone, const cs_insn *insn);
	/* The target of a relative branch, jump or call. */
	bool (*target)(csh capstone, const cs_insn *insn, uint64_t *vaddr);
	/*
	 * How it uses a register: reads 8 or 4 bytes of it; 0 not at all; -1 overwrites it.
	 */
	int (*register_use)(const cs_insn *insn, uint32_t reg);
	/* Does it write memory? */
	bool (*stores)(const cs_insn *insn);
	bool (*is_syscall)(const cs_insn *insn);
	bool (*is_return)(const cs_insn *insn);
	/* The decoded effect (insn.h). out: all but op, operands and written is set. */
	void (*decode)(struct inline_decoder *decoder, struct inline_insn *out);
};

extern const struct machine machine_x86, machine_arm64;

/* The one that the tracer is built for. */
static inline const struct machine *machine_own(void)
{
#ifdef __aarch64__
	return &machine_arm64;
#else
	return &machine_x86;
#endif
}

#endif
