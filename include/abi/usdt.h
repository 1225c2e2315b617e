/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Where the arguments of a USDT probe are: in the BPF map `usdt`, one struct abi_usdt for each
 * distinct set, written by user/attach/. The probe's cookie has its index.
 */
#pragma once

#include <linux/types.h>

#include "abi/frame.h"

#define ABI_USDT_ARGUMENTS 3
#define ABI_USDT_MAX       8192u /* distinct sets, of all files of a session */

enum abi_usdt_kind {
	ABI_USDT_CONSTANT = 0, /* value */
	ABI_USDT_REGISTER = 1, /* base */
	/* the memory at base + index * 2^scale + value */
	ABI_USDT_MEMORY = 2,
	/* the same, in addition to the fs base of the thread */
	ABI_USDT_THREAD = 3,
};

#define ABI_USDT_NONE 0xffu /* no register: 0 */

/* base, index: offsets in struct pt_regs (<asm/ptrace.h>), in bytes; that of rax + 1 is %ah */
struct abi_usdt_argument {
	__u8 kind;      /* enum abi_usdt_kind */
	__u8 base;      /* or ABI_USDT_NONE */
	__u8 index;     /* or ABI_USDT_NONE */
	__u8 scale;     /* 0 to 3 */
	__u8 bytes;     /* of the value: 1, 2, 4, 8 */
	__u8 is_signed; /* 1: it is extended with its sign */
	__u16 pad;
	__s64 value;
};

struct abi_usdt {
	struct abi_usdt_argument arguments[ABI_USDT_ARGUMENTS];
	/*
	 * The producer's own code, in bytes before and behind the probe: stacks begin with the code
	 * that has called it. 0, 0: not known.
	 */
	__u32 before, behind;
	struct abi_frame frame; /* of the function, at the probe */
};

_Static_assert(sizeof(struct abi_usdt_argument) == 16, "usdt_argument");
_Static_assert(sizeof(struct abi_usdt) == 72, "usdt");
