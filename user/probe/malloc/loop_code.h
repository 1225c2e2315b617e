/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code of the evaluation loop, _PyEval_EvalFrameDefault, by which its calls are told on native
 * stacks up to 3.9. Every build exports the function. Compilers move what is seldom run to a part
 * of its own, which has no exported symbol.
 */
#pragma once

#include "abi/target.h"
#include "object/elf/elf_file.h"

#define LOOP_CODE_BEFORE    0x030au /* later versions tell the loop's calls themselves */
#define LOOP_CODE_BYTES_MAX (1u << 20)

/* Sets both parts' vaddrs; bytes 0: there is none, or it is not found. */
void loop_code_find(struct elf_file *file, struct abi_code out[ABI_LOOP_CODES]);
