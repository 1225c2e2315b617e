/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process with the false image: it maps what it is ordered to, and does nothing else. It has no
 * libc, and is linked at an address that no other program uses, so that any program's image fits
 * beside it (image_process.h).
 */
#include <sys/syscall.h>

#include "image_process.h"

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

__attribute__((used, noreturn)) static void run(void)
{
	struct image_order order;

	while (call(SYS_read, 0, (long)&order, sizeof(order), 0, 0, 0) == sizeof(order)) {
		long result =
			call((long)order.call, (long)order.arguments[0], (long)order.arguments[1],
			     (long)order.arguments[2], (long)order.arguments[3],
			     (long)order.arguments[4], (long)order.arguments[5]);

		call(SYS_write, 1, (long)&result, sizeof(result), 0, 0, 0);
	}
	call(SYS_exit_group, 0, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}

__attribute__((naked, noreturn)) void _start(void)
{
	__asm__("and $-16, %rsp\n\tcall run");
}
