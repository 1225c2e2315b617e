/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an allocator's function does with a request, read from its code: jump to another allocator,
 * call another one, or serve it. Pure.
 *
 * libstdc++'s operator delete is a jump to free, its operator new a call of malloc. A probe on the
 * former costs an extra trap and adds nothing. The latter must have no return probe: a return probe
 * replaces the return address, by which an exception that the function throws is unwound, and the
 * process would terminate.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "object/insn/insn.h"

/*
 * Does code jump to or call a known function? target: its address or, if slot, the address of the
 * slot that holds it.
 */
typedef int native_known_fn(void *context, uint64_t target, int slot);

struct native_code {
	struct inline_decoder *decoder;
	const uint8_t *bytes;
	size_t count;
	uint64_t vaddr;
	native_known_fn *known;
	void *context;
};

/*
 * Is the function only a jump to a known one? Then the known one sees the same stack and the same
 * request. checked: the function may first check whether its arguments can be multiplied, and fail
 * if not.
 */
int native_only_jumps(const struct native_code *code, int checked);
/* Does the function call, or jump to, a known one anywhere? */
int native_calls_known(const struct native_code *code);
/* The slot that a stub of the procedure linkage table jumps through; 0: the code is not a stub. */
uint64_t native_stub_slot(struct inline_decoder *decoder, const uint8_t *bytes, size_t count,
			  uint64_t vaddr);
