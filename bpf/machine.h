/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What differs between machines: registers at a probe, calls and returns, the thread pointer, the
 * frame of a signal.
 */
#pragma once

#include <linux/ptrace.h>
#include <linux/types.h>

#ifdef __TARGET_ARCH_arm64

/* A program at a probe gets the part of the registers that user space knows. */
#define pt_regs user_pt_regs

#define REG_SP(regs)     ((regs)->sp)
#define REG_PC(regs)     ((regs)->pc)
#define REG_FRAME(regs)  ((regs)->regs[29])
#define REG_RESULT(regs) ((regs)->regs[0])
/* of a system call, after it, but for the first */
#define REG_CALL_1(regs) ((regs)->regs[0])
#define REG_CALL_2(regs) ((regs)->regs[1])
#define REG_CALL_3(regs) ((regs)->regs[2])
#define REG_CALL_4(regs) ((regs)->regs[3])
/* the result of the last comparison: equal; the first was below the second, unsigned */
#define REG_IS_EQUAL(regs) ((regs)->pstate >> 30 & 1)
#define REG_IS_BELOW(regs) (~(regs)->pstate >> 29 & 1)
/* where a function returns to, at its first instruction */
#define REG_CALLER(regs) ((regs)->regs[30])
/* the same, while the function has made no call */
#define REG_LINK(regs) ((regs)->regs[30])
/* 1: the result of a system call replaces its first argument */
#define CALL_1_IS_LOST 1
/* bytes of the stack that a return pops */
#define RETURN_BYTES 0
/* 1: a call pushes its return address, so that it is at the stack pointer of a function's entry */
#define RETURN_IS_PUSHED 0

#define THREAD_POINTER(task) ((task)->thread.uw.tp_value)
/* Is this pthread_self()? It is the structure that ends at the thread pointer. */
#define THREAD_ID_BYTES_MAX       4096u
#define IS_THREAD_ID(id, pointer) ((pointer) - (id)-1 < THREAD_ID_BYTES_MAX)
#define THREAD_VECTOR_OFFSET      0 /* of the dtv, from the thread pointer */

/* A return address without the bits that authenticate it. */
#define CODE_ADDRESS(word) ((word)&0xffffffffffffull)

/* Offsets from the stack pointer in a signal's frame (struct rt_sigframe, the kernel's ABI). */
#define SIGNAL_FRAME 544
#define SIGNAL_SP    560 /* pc is the next word */
/* mov x8, #139; svc #0 */
#define IS_SIGNAL_RETURN(code) ((code)[0] == 0xd4000001d2801168)
#define IS_CONTEXT_END(code)   0
/* A leaf function's return address is in the link register only: nothing goes on at a signal. */
#define SIGNAL_GOES_ON(before) 0
#define SIGNAL_IN_ROWS         0

#define CALL_BYTES 4 /* that tell a call, before its return address */

/* bl, blr, or blr with an authenticated address */
static __always_inline int is_call_end(const __u8 code[CALL_BYTES])
{
	__u32 insn = code[0] | code[1] << 8 | code[2] << 16 | (__u32)code[3] << 24;

	return (insn & 0xfc000000) == 0x94000000 || (insn & 0xfefff000) == 0xd63f0000;
}

#else

#define REG_SP(regs)       ((regs)->rsp)
#define REG_PC(regs)       ((regs)->rip)
#define REG_FRAME(regs)    ((regs)->rbp)
#define REG_RESULT(regs)   ((regs)->rax)
#define REG_CALL_1(regs)   ((regs)->rdi)
#define REG_CALL_2(regs)   ((regs)->rsi)
#define REG_CALL_3(regs)   ((regs)->rdx)
#define REG_CALL_4(regs)   ((regs)->r10)
#define REG_IS_EQUAL(regs) ((regs)->eflags >> 6 & 1)
#define REG_IS_BELOW(regs) ((regs)->eflags & 1)
#define REG_CALLER(regs)   user_u64((regs)->rsp)
#define REG_LINK(regs)     0
#define CALL_1_IS_LOST     0
#define RETURN_BYTES       8
#define RETURN_IS_PUSHED   1

#define THREAD_POINTER(task)      ((task)->thread.fsbase)
#define IS_THREAD_ID(id, pointer) ((id) == (pointer))
#define THREAD_VECTOR_OFFSET      8

#define CODE_ADDRESS(word) (word)

/* struct ucontext, to which the stack pointer points */
#define SIGNAL_FRAME       120
#define SIGNAL_SP          160
/* mov $15, %rax; syscall, or mov $15, %eax; syscall */
#define IS_SIGNAL_RETURN(code)                                                                     \
	(((code)[0] == 0x0f0000000fc0c748 && ((code)[1] & 0xff) == 0x05) ||                        \
	 ((code)[0] & 0xffffffffffffff) == 0x050f0000000fb8)
/* mov %rbx, %rsp; mov (%rsp), %rdi; test %rdi, %rdi */
#define IS_CONTEXT_END(code)   ((code)[0] == 0x48243c8b48dc8948 && ((code)[1] & 0xffff) == 0xff85)
/* Tables of calls describe system calls, too: is the instruction before a system call? */
#define SIGNAL_GOES_ON(before) ((before) == 0x050f)
/* 1: elsewhere, a table of all rows tells where the return address is */
#define SIGNAL_IN_ROWS         1

#define CALL_BYTES 8

/* E8 rel32, or FF /2 in its forms of 2, 3, 4, 6, 7 bytes */
static __always_inline int is_call_end(const __u8 code[CALL_BYTES])
{
	return code[3] == 0xe8 || (code[6] == 0xff && (code[7] & 0x38) == 0x10) ||
	       (code[5] == 0xff && (code[6] & 0x38) == 0x10) ||
	       (code[4] == 0xff && (code[5] & 0x38) == 0x10) ||
	       (code[2] == 0xff && (code[3] & 0x38) == 0x10) ||
	       (code[1] == 0xff && (code[2] & 0x38) == 0x10);
}

#endif
