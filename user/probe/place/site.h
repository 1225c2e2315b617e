/* SPDX-License-Identifier: Apache-2.0 */
/* A requested probe, and the instruction that it is placed on. */
#pragma once

#include <stdint.h>

#include "abi/target.h"
#include "abi/usdt.h"

/*
 * For probe_spec.with_return: no return probe, but as with one the stack pointer at the site must
 * have its value at the entry.
 */
#define PLAN_ENTRY_STACK 2

struct probe_spec {
	const char *symbol;
	enum abi_op op;
	uint32_t api;          /* enum event_api */
	uint32_t arguments[3]; /* enum abi_register at entry; unused ones ABI_REG_COUNT */
	int with_return;       /* or PLAN_ENTRY_STACK */
};

struct plan_site {
	char symbol[96];
	uint64_t vaddr;       /* of the probed instruction, in the file */
	uint64_t offset;      /* in the file */
	uint32_t in_function; /* bytes from the function's entry */
	uint64_t cookie;      /* ABI_COOKIE with the registers that hold the arguments here */
	enum abi_op op;
	int with_return;
	int emulated;
	/* of a USDT probe; semaphore: its offset in the file, 0: none */
	struct abi_usdt usdt;
	uint64_t semaphore;
	char instruction[64]; /* disassembly */
	char why[128];
};
