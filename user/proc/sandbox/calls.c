/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/sandbox/calls.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/arch.h"
#include "util/array.h"
#include "util/error.h"

#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)
/* Calls made by another tracer's probes in our libc; some headers lack them. */
#define SYS_URETPROBE_NR 335
#define SYS_UPROBE_NR    336

/* clang-format off */
static const uint16_t allowed[] = {
	/* files */
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_lseek,
	SYS_openat, SYS_openat2, SYS_close, SYS_close_range, SYS_fstat,
	SYS_newfstatat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_faccessat,
	SYS_faccessat2, SYS_readlinkat, SYS_getdents64, SYS_getcwd, SYS_fcntl,
	SYS_dup, SYS_dup3, SYS_ftruncate, SYS_fsync, SYS_fdatasync, SYS_fadvise64,
	SYS_fallocate, SYS_renameat, SYS_renameat2, SYS_unlinkat,
	SYS_linkat, SYS_fchmod, SYS_fchown, SYS_fsetxattr, SYS_name_to_handle_at, SYS_flock,
	SYS_umask,
	/* waiting */
	SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl,
	SYS_epoll_pwait, SYS_eventfd2, SYS_pipe2, SYS_signalfd4,
	SYS_timerfd_create, SYS_timerfd_settime, SYS_inotify_init1, SYS_inotify_add_watch,
	SYS_inotify_rm_watch, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime,
	SYS_clock_getres, SYS_gettimeofday, SYS_setitimer, SYS_restart_syscall,
	/* memory */
	SYS_brk, SYS_memfd_create, SYS_munmap, SYS_mremap, SYS_madvise,
	/* processes and threads */
	SYS_getpid, SYS_gettid, SYS_getppid, SYS_getuid, SYS_geteuid, SYS_getgid,
	SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_sched_yield, SYS_sched_getaffinity,
	SYS_sched_setaffinity, SYS_getcpu, SYS_getrandom, SYS_uname, SYS_sysinfo, SYS_prlimit64,
	SYS_getrlimit, SYS_setrlimit, SYS_getrusage, SYS_times, SYS_rt_sigaction,
	SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_rt_sigpending,
	SYS_rt_sigsuspend, SYS_sigaltstack, SYS_kill, SYS_tgkill, SYS_tkill, SYS_pidfd_open,
	SYS_pidfd_send_signal, SYS_wait4, SYS_waitid, SYS_futex,
	SYS_set_robust_list, SYS_get_robust_list, SYS_rseq, SYS_set_tid_address, SYS_membarrier,
	SYS_prctl, SYS_seccomp, SYS_capget, SYS_capset, SYS_setsid, SYS_setpriority, SYS_exit,
	SYS_exit_group,
	/* what takes away more (files.h) */
	SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self,
	/* tracer ctl, and the Docker daemon's socket */
	SYS_connect, SYS_accept, SYS_accept4, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg,
	SYS_shutdown, SYS_getsockopt, SYS_setsockopt, SYS_getsockname, SYS_getpeername,
	SYS_socketpair,
#ifdef __x86_64__
	/* calls that newer machines do without */
	SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_dup2, SYS_rename, SYS_unlink,
	SYS_poll, SYS_select, SYS_epoll_wait, SYS_pipe, SYS_time, SYS_getpgrp, SYS_fork, SYS_vfork,
	SYS_arch_prctl,
	SYS_URETPROBE_NR, SYS_UPROBE_NR,
#endif
	/* probes */
	SYS_bpf, SYS_ioctl,
};
/* clang-format on */

/* Allowed only if (argument & bits) == value. */
static const struct {
	uint16_t call, argument;
	uint32_t bits, value;
} limited[] = {
	{SYS_clone, 0, NAMESPACES, 0},
	{SYS_mmap, 2, PROT_EXEC, 0},
	{SYS_mprotect, 2, PROT_EXEC, 0},
	{SYS_socket, 0, UINT32_MAX, AF_UNIX},
};

#ifndef __has_feature /* clang's test; gcc has a macro */
#define __has_feature(name) 0
#endif
#ifdef __SANITIZE_ADDRESS__
#define HAS_LIST 0
#else
#define HAS_LIST (!__has_feature(address_sanitizer))
#endif

struct code {
	struct sock_filter *lines;
	size_t count, capacity;
};

static int put(struct code *code, struct sock_filter line)
{
	int err = ARRAY_GROW(code->lines, code->capacity, code->count);

	if (!err)
		code->lines[code->count++] = line;
	return err;
}

static int put_load(struct code *code, size_t offset)
{
	return put(code, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static int put_return(struct code *code, uint32_t action)
{
	return put(code, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* If the loaded value equals value, executes the next line, else skips that many further lines. */
static int put_if(struct code *code, uint32_t value, uint8_t skip)
{
	return put(code, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip));
}

static int put_call(struct code *code, uint32_t call, uint32_t action)
{
	return put_if(code, call, 1) ?: put_return(code, action);
}

/* These calls ignore the argument's upper half. */
static int put_limited(struct code *code, size_t i, uint32_t refused)
{
	size_t argument = offsetof(struct seccomp_data, args) + 8 * (size_t)limited[i].argument;

	return put_if(code, limited[i].call, 5) ?: put_load(code, argument)
		?: put(code, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K,
							  limited[i].bits))
		?: put_if(code, limited[i].value, 1) ?: put_return(code, SECCOMP_RET_ALLOW)
		?: put_return(code, refused);
}

static int code_make(struct code *code, unsigned int wants, uint32_t refused)
{
	int err = put_load(code, offsetof(struct seccomp_data, arch))
		  ?: put(code,
			 (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_AUDIT, 1, 0))
		  ?: put_return(code, SECCOMP_RET_KILL_PROCESS)
		  ?: put_load(code, offsetof(struct seccomp_data, nr));

	for (size_t i = 0; !err && i < ARRAY_SIZE(allowed); i++)
		err = put_call(code, allowed[i], SECCOMP_RET_ALLOW);
	if (!err && wants & CALLS_ATTACH)
		err = put_call(code, SYS_perf_event_open, SECCOMP_RET_ALLOW);
	if (!err && wants & CALLS_FREEZE)
		err = put_call(code, SYS_ptrace, SECCOMP_RET_ALLOW);
	/*
	 * Its argument is in memory, which a filter cannot read. The C library falls back to
	 * clone().
	 */
	err = err ?: put_call(code, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
	for (size_t i = 0; !err && i < ARRAY_SIZE(limited); i++)
		err = put_limited(code, i, refused);
	return err ?: put_return(code, refused);
}

/* Reports the refused call, with async-signal-safe functions only. */
static void refused_call_report(int number, siginfo_t *info, void *context)
{
	char text[] = "tracer: system call 0000 is not on the list\n";
	char *first = strchr(text, '0'), *digit = first + 3;

	(void)number, (void)context;
	for (int call = info->si_syscall; call > 0 && digit >= first; call /= 10)
		*digit-- = (char)('0' + call % 10);
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(71);
	_exit(70);
}

static uint32_t refusal(void)
{
	const char *spec = getenv("TRACER_CALLS");
	struct sigaction action = {.sa_sigaction = refused_call_report,
				   .sa_flags = SA_SIGINFO | SA_NODEFER};

	if (!spec || strcmp(spec, "kill") != 0 || sigaction(SIGSYS, &action, NULL))
		return SECCOMP_RET_ERRNO | EPERM;
	return SECCOMP_RET_TRAP;
}

int calls_limit(unsigned int wants)
{
	struct code code = {0};
	int err = HAS_LIST ? code_make(&code, wants, refusal()) : 0;
	struct sock_fprog program = {.len = (unsigned short)code.count, .filter = code.lines};

	long thread = 0;

	if (HAS_LIST && !err)
		thread = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
				 &program);
	if (thread) /* positive: the id of a thread with a filter of its own */
		err = error_set(thread < 0 ? error_errno() : -EBUSY,
				"the kernel refuses a list of allowed system calls");
	free(code.lines);
	return err;
}
