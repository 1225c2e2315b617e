/* SPDX-License-Identifier: Apache-2.0 */
/* Where a function is probed at its entry. Pure: machine code in, a probe site out. */
#ifndef TRACER_X86_FUNCTION_ENTRY_H
#define TRACER_X86_FUNCTION_ENTRY_H

#include <stddef.h>
#include <stdint.h>

#include "x86/site.h"

#define FUNCTION_MAX_CODE 4096 /* bytes of a function that are decoded */

/*
 * Where to probe one function. code: its bytes from the entry on (size may be cut at
 * FUNCTION_MAX_CODE), loaded at vaddr. Fills everything of site but symbol and offset. Always
 * succeeds in naming a site (the entry at worst) unless code is empty (-EINVAL) or there is no
 * memory for the decoder (-ENOMEM). In the cookie, the register of an argument that the wish does
 * not have is ABI_REG_COUNT; a 32-bit argument is the low half of its register.
 */
int function_entry_site(const struct plan_wish *wish, const uint8_t *code, size_t bytes,
			uint64_t vaddr, struct plan_site *site);

/*
 * Does the code that runs first in a function read this argument's register (enum abi_register) by
 * its lower half alone? Then it is an int, and the other half means nothing. 0 also when that
 * cannot be told.
 */
int function_argument_is_32(const uint8_t *code, size_t bytes, uint32_t reg);

#endif
