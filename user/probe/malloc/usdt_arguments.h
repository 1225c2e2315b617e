/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of a USDT probe, as the assembler's operands that its note has: of x86-64 "8@%rdi",
 * "-4@-20(%rbp)", "8@$5", "8@16(%rax,%rcx,8)", "8@%fs:-16", "8@counter+8(%rip)"; of arm64 "8@x0",
 * "-4@[sp, 20]", "8@5". The number is the size in bytes, negative if the value is signed. Pure; the
 * text is hostile.
 */
#pragma once

#include <stddef.h>

#include "abi/usdt.h"
#include "object/insn/machine.h"
#include "object/insn/operand.h"

#define USDT_ARGUMENTS_MAX 256u /* bytes of a text */

/*
 * Parses exactly count arguments, at most ABI_USDT_ARGUMENTS, into out->arguments. symbols: NULL if
 * names of variables are not to be understood. 0; -EINVAL (error_set names the argument).
 */
int usdt_arguments_parse(const struct machine *machine, const char *text, size_t count,
			 const struct usdt_symbols *symbols, struct abi_usdt *out);
