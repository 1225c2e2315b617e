/* SPDX-License-Identifier: Apache-2.0 */
/* machine.look and .stub_slot of x86-64. Internal to it. */
#ifndef TRACER_MACHINE_X86_LOOK_H
#define TRACER_MACHINE_X86_LOOK_H

#include "machine/machine.h"

size_t x86_look(enum machine_look what, const struct inline_range *text, size_t from,
		const struct inline_address *flag, struct machine_found *out);
uint64_t x86_stub_slot(const uint8_t *code, size_t bytes, uint64_t vaddr);

#endif
