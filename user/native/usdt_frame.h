/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a function keeps its return address at a USDT probe in it, read from the code between its
 * entry and the probe: optimised functions have no frame pointer of their own. Pure.
 */
#ifndef TRACER_NATIVE_USDT_FRAME_H
#define TRACER_NATIVE_USDT_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "abi/usdt.h"
#include "machine/insn.h"

#define USDT_FRAME_CODE 4096u /* bytes */

/*
 * code: the function's from its entry at vaddr up to the probe, count bytes. Sets out->frame,
 * return_at and saved_at; ABI_USDT_FRAME_UNKNOWN where no way from the entry to the probe is seen,
 * or the code is longer than USDT_FRAME_CODE.
 */
void usdt_frame_find(struct inline_decoder *decoder, const uint8_t *code, size_t count,
		     uint64_t vaddr, struct abi_usdt *out);

#endif
