/* SPDX-License-Identifier: Apache-2.0 */
#ifdef __aarch64__
#include <asm/ptrace.h>
#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "proc/registers.h"
#include "util/error.h"

/* DBGBCR<n>_EL1: enabled (bit 0), for user space (bits 1, 2: EL0), of a whole instruction. */
#define BREAK_ENABLED (1u | 2u << 1 | 0xfu << 5)

static int registers_read(pid_t tid, struct user_pt_regs *out)
{
	struct iovec io = {out, sizeof(*out)};

	if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &io))
		return error_errno();
	/* A 32-bit program has a shorter set. */
	return io.iov_len == sizeof(*out) ? 0 : -ENOTSUP;
}

int registers_pc(pid_t tid, uint64_t *pc)
{
	struct user_pt_regs registers = {0};
	int err = registers_read(tid, &registers);

	if (!err)
		*pc = registers.pc;
	return err;
}

/*
 * The result has replaced the first argument, and the kernel does not show the original one. So no
 * call can be repeated here.
 */
long registers_interrupted_call(pid_t tid)
{
	(void)tid;
	return -ENOENT;
}

int registers_repeat_call(pid_t tid)
{
	(void)tid;
	return -ENOTSUP;
}

int registers_break_at(pid_t tid, uint64_t address)
{
	struct user_hwdebug_state state = {0};
	struct iovec io = {&state, offsetof(struct user_hwdebug_state, dbg_regs) +
					   sizeof(state.dbg_regs[0])};

	state.dbg_regs[0].addr = address;
	state.dbg_regs[0].ctrl = address ? BREAK_ENABLED : 0;
	return ptrace(PTRACE_SETREGSET, tid, (void *)NT_ARM_HW_BREAK, &io) ? error_errno() : 0;
}
#endif
