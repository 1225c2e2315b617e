/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the planner needs to know of a machine: its instructions, as the kernel and as Capstone see
 * them, and how its functions are called. Pure.
 */
#pragma once

#include <capstone/capstone.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/target.h"
#include "object/insn/image.h"
#include "object/insn/insn.h"

#define MACHINE_ARGUMENTS 6

struct inline_address;
struct machine_frame;
struct abi_usdt_argument;
struct operand;

/*
 * What is searched for in all code of a file as bytes, because decoding it would take a second.
 * What is found may be something else.
 */
enum machine_look {
	MACHINE_JUMP, /* a relative jump or branch of long_jump bytes or more: its target */
	MACHINE_POOL, /* a read of pool->nextpool, or of pool->freeblock with a store soon after */
	MACHINE_TRIPLE, /* multiplies by three */
	MACHINE_CALL,   /* a call, or a jump that may stand for one: its target */
	MACHINE_READER, /* reads a flag, or an address through which the flag may be read next */
};

struct machine_found {
	uint64_t vaddr, target;
	uint8_t bytes;        /* MACHINE_CALL: of the instruction */
	uint8_t through_slot; /* MACHINE_CALL: target is the address of the slot */
	uint8_t is_call;      /* MACHINE_CALL: not a jump */
	uint8_t is_next;      /* MACHINE_POOL: of pool->nextpool */
	uint8_t prefixed;     /* MACHINE_READER: the instruction may begin a byte before */
	/*
	 * MACHINE_READER: the register that must hold the flag's address less value (or, through a
	 * slot, its content); ABI_REG_COUNT: none
	 */
	uint8_t base;
	int64_t value;
};

struct machine {
	const char *name;
	/* Capstone's */
	cs_arch arch;
	cs_mode mode;
	uint8_t insn_step; /* instructions begin at multiples of it */
	uint8_t long_jump; /* shorter jumps are not found as bytes */
	uint8_t filler;    /* bytes of it are no code that goes on */
	uint8_t nop[4];    /* insn_step bytes */
	/* enum abi_register */
	uint8_t stack_pointer;
	/* holds the return address at a function's entry; ABI_REG_COUNT: it is on the stack */
	uint8_t link_register;
	uint8_t return_bytes; /* of the stack that a return pops */
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
	/* How it uses a register: reads 8 or 4 bytes of it; 0 not at all; -1 overwrites it. */
	int (*register_use)(const cs_insn *insn, uint32_t reg);
	/* Does it write memory? */
	bool (*stores)(const cs_insn *insn);
	bool (*is_syscall)(const cs_insn *insn);
	bool (*is_return)(const cs_insn *insn);
	/* The effect on a function's frame (object/insn/frame.h). */
	int (*frame_step)(struct machine_frame *frame, const cs_insn *insn,
			  const struct inline_insn *decoded);
	/* An operand of a USDT probe (object/insn/operand.h). */
	int (*operand_take)(struct operand *operand, struct abi_usdt_argument *out);
	/* The decoded effect (insn.h). out: all but op, operands and written is set. */
	void (*decode)(struct inline_decoder *decoder, struct inline_insn *out);
	/*
	 * Finds the next one that begins at that offset in text or above. flag: of MACHINE_READER.
	 * Returns the offset to continue from; 0: there is none.
	 */
	size_t (*look)(enum machine_look what, const struct inline_range *text, size_t from,
		       const struct inline_address *flag, struct machine_found *out);
	/* The slot that the stub jumps through whose code begins there; 0: no stub. */
	uint64_t (*stub_slot)(const uint8_t *code, size_t bytes, uint64_t vaddr);
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
