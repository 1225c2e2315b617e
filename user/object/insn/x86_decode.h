/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the machine x86-64. Internal to it. */
#pragma once

#include "object/insn/insn.h"

void x86_decode(struct inline_decoder *decoder, struct inline_insn *out);
uint32_t x86_register_of(unsigned reg);
