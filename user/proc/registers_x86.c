/* SPDX-License-Identifier: Apache-2.0 */
#ifdef __x86_64__
#include <errno.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#include "proc/registers.h"
#include "util/error.h"

#define CODE_64       0x33 /* the code segment of 64-bit programs */
#define SYSCALL_BYTES 2

static int registers_read(pid_t tid, struct user_regs_struct *out)
{
	return ptrace(PTRACE_GETREGS, tid, NULL, out) ? error_errno() : 0;
}

int registers_pc(pid_t tid, uint64_t *pc)
{
	struct user_regs_struct registers;
	int err = registers_read(tid, &registers);

	if (!err)
		*pc = registers.rip;
	return err;
}

long registers_interrupted_call(pid_t tid)
{
	struct user_regs_struct registers;

	if (registers_read(tid, &registers) || registers.cs != CODE_64 ||
	    (long long)registers.rax != -EINTR)
		return -ENOENT;
	return (long)registers.orig_rax;
}

int registers_repeat_call(pid_t tid)
{
	struct user_regs_struct registers;
	int err = registers_read(tid, &registers);

	if (err)
		return err;
	registers.rax = registers.orig_rax;
	registers.rip -= SYSCALL_BYTES;
	return ptrace(PTRACE_SETREGS, tid, NULL, &registers) ? error_errno() : 0;
}

static int debug_register_set(pid_t tid, size_t number, uint64_t value)
{
	size_t offset = offsetof(struct user, u_debugreg) + number * sizeof(value);

	return ptrace(PTRACE_POKEUSER, tid, (void *)offset, (void *)value) ? error_errno() : 0;
}

/*
 * Debug register 7 enables the breakpoint: bit 0 for the address in register 0; kind and length 0
 * mean execution.
 */
int registers_break_at(pid_t tid, uint64_t address)
{
	if (address)
		debug_register_set(tid, 0, address);
	return debug_register_set(tid, 7, address != 0);
}
#endif
