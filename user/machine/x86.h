/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of x86-64 instructions that the planner and the analysis of inlined allocators need.
 */
#ifndef TRACER_MACHINE_X86_H
#define TRACER_MACHINE_X86_H

#include <capstone/capstone.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Does the kernel emulate this instruction when it is probed, instead of single-stepping it with a
 * second trap?
 */
bool x86_is_emulated(const uint8_t *code, size_t bytes);
/*
 * The enum abi_register of a Capstone register or of a part of one; ABI_REG_COUNT: of another kind.
 */
uint32_t x86_register_of(unsigned reg);
/*
 * Registers that the instruction may write: bit r for enum abi_register r; bit ABI_REG_COUNT for
 * any other.
 */
uint32_t x86_registers_written(csh capstone, const cs_insn *insn);
/* "rax" for ABI_REG_AX. Static. */
const char *x86_register_name(uint32_t reg);

#endif
