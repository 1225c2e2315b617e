/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The arguments at a probe: the cookie says which registers hold them (include/abi/target.h). */
#pragma once

#include "kernel.h"

#include "abi/target.h"

/*
 * In assembler: otherwise the compiler merges the cases into one load from a computed address,
 * which the verifier rejects.
 */
#define REGISTER_CASE(name, field)                                                                 \
	case ABI_REG_##name:                                                                       \
		asm volatile("%0 = *(u64 *)(%1 + %2)"                                              \
			     : "=r"(value)                                                         \
			     : "r"(regs), "i"(__builtin_offsetof(struct pt_regs, field)));         \
		return value

#ifdef __TARGET_ARCH_arm64
#define REGISTER_X(n) REGISTER_CASE(X##n, regs[n])
#define REGISTER_CASES                                                                             \
	REGISTER_X(0);                                                                             \
	REGISTER_X(1);                                                                             \
	REGISTER_X(2);                                                                             \
	REGISTER_X(3);                                                                             \
	REGISTER_X(4);                                                                             \
	REGISTER_X(5);                                                                             \
	REGISTER_X(6);                                                                             \
	REGISTER_X(7);                                                                             \
	REGISTER_X(8);                                                                             \
	REGISTER_X(9);                                                                             \
	REGISTER_X(10);                                                                            \
	REGISTER_X(11);                                                                            \
	REGISTER_X(12);                                                                            \
	REGISTER_X(13);                                                                            \
	REGISTER_X(14);                                                                            \
	REGISTER_X(15);                                                                            \
	REGISTER_X(16);                                                                            \
	REGISTER_X(17);                                                                            \
	REGISTER_X(18);                                                                            \
	REGISTER_X(19);                                                                            \
	REGISTER_X(20);                                                                            \
	REGISTER_X(21);                                                                            \
	REGISTER_X(22);                                                                            \
	REGISTER_X(23);                                                                            \
	REGISTER_X(24);                                                                            \
	REGISTER_X(25);                                                                            \
	REGISTER_X(26);                                                                            \
	REGISTER_X(27);                                                                            \
	REGISTER_X(28)
#else
#define REGISTER_CASES                                                                             \
	REGISTER_CASE(AX, rax);                                                                    \
	REGISTER_CASE(CX, rcx);                                                                    \
	REGISTER_CASE(DX, rdx);                                                                    \
	REGISTER_CASE(BX, rbx);                                                                    \
	REGISTER_CASE(BP, rbp);                                                                    \
	REGISTER_CASE(SI, rsi);                                                                    \
	REGISTER_CASE(DI, rdi);                                                                    \
	REGISTER_CASE(R8, r8);                                                                     \
	REGISTER_CASE(R9, r9);                                                                     \
	REGISTER_CASE(R10, r10);                                                                   \
	REGISTER_CASE(R11, r11);                                                                   \
	REGISTER_CASE(R12, r12);                                                                   \
	REGISTER_CASE(R13, r13);                                                                   \
	REGISTER_CASE(R14, r14);                                                                   \
	REGISTER_CASE(R15, r15)
#endif

static __always_inline __u64 argument(struct pt_regs *regs, __u64 cookie, int index)
{
	__u64 value;

	switch (cookie >> (16 + 8 * index) & 0xff) {
		REGISTER_CASES;
	}
	return 0;
}

/* The cookie's addend. */
static __always_inline __s64 addend(__u64 cookie)
{
	return (__s16)(cookie >> 40);
}
