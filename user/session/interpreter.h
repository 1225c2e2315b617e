/* SPDX-License-Identifier: Apache-2.0 */
/* Where a member's interpreter has its code, for the walks of its stacks. */
#ifndef TRACER_SESSION_INTERPRETER_H
#define TRACER_SESSION_INTERPRETER_H

#include <stddef.h>

#include "abi/target.h"
#include "member/member.h"

/* Vaddrs of code of the interpreter's file to addresses, up to the first without a byte. */
void interpreter_codes_place(const struct member *member, struct abi_code *out,
			     const struct abi_code *vaddrs, size_t count);
/*
 * Sets the range where the interpreter is mapped as code: native frames of a traceback end there,
 * or go on with those that have called the evaluation loop. Python is running in it, or it is not
 * set.
 */
void interpreter_find(struct member *member);

#endif
