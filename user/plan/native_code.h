/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an allocator's function does with a request, read off its code: pass it on to another one,
 * ask another one, or serve it. Pure.
 *
 * libstdc++'s operator delete is a jump to free, its operator new a call of malloc. A probe on the
 * one would cost a trap more and tell nothing; on the other, a return probe is not to be: an
 * exception that the function throws is unwound by the return address, where the kernel has put the
 * probe's, and the process would end.
 */
#ifndef TRACER_PLAN_NATIVE_CODE_H
#define TRACER_PLAN_NATIVE_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "x86/insn.h"

/*
 * Is what code jumps to one of the functions that are asked for? target: its address; slot: that of
 * what holds it.
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
 * Does the function come to nothing but a jump to a known one? Then that sees the same stack, and
 * the request. checked: what it does first is to find out whether the arguments can be multiplied,
 * and it fails if not.
 */
int native_jumps_on(const struct native_code *code, int checked);
/* Does it call, or jump to, a known one anywhere? */
int native_asks(const struct native_code *code);
/* The slot that a stub of the procedure linkage table jumps through; 0: the code is no stub. */
uint64_t native_stub_slot(struct inline_decoder *decoder, const uint8_t *bytes, size_t count,
			  uint64_t vaddr);

#endif
