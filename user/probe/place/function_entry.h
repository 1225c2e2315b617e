/* SPDX-License-Identifier: Apache-2.0 */
/* Where a function is probed at its entry. Pure: takes machine code, returns a probe site. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "object/insn/machine.h"
#include "probe/place/site.h"

#define FUNCTION_MAX_CODE 4096 /* bytes of a function that are decoded, at most */

/*
 * Picks the instruction at which to probe a function. code: its bytes from the entry on (may be cut
 * at FUNCTION_MAX_CODE), loaded at vaddr. Fills all of site but symbol and offset. It always finds
 * a site, at worst the entry. 0; -EINVAL code is empty; -ENOMEM. In the cookie, the register of an
 * argument that the spec lacks is ABI_REG_COUNT; a 32-bit argument is the low half of its register.
 */
int function_entry_site(const struct machine *machine, const struct probe_spec *spec,
			const uint8_t *code, size_t bytes, uint64_t vaddr, struct plan_site *site);

/*
 * Does the code that runs first in a function read only the lower half of this argument's register
 * (enum abi_register)? Then it is an int, and the upper half is undefined. 0 also when unknown.
 */
bool function_argument_is_32(const struct machine *machine, const uint8_t *code, size_t bytes,
			     uint32_t reg);
