/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows for calls in code that no entry of .eh_frame covers (musl is built without; so is some
 * assembly): from what the instructions between the call and the function's return do to rsp.
 *
 * A rule is derived only if all paths to a return agree. A path that runs into another function,
 * as it does after a call that does not return, is recognised by padding, by calls to that function
 * and by the alignment of rsp at calls. What is not certain gets no row. test_unwind_flow.c
 * compares the rules with .eh_frame where there is one: of the calls of C code 83 to 97 % get a
 * rule, of these less than one in 5,000 is wrong. (Of C++ more are: it throws, and nothing tells a
 * call of __cxa_throw from another. But C++ is never built without .eh_frame.)
 */
#pragma once

#include "object/unwind/calls.h"
#include "object/unwind/cfi.h"

/*
 * Bytes of uncovered code. If there are more, none is read: it takes 0.1 s, and what is larger than
 * a libc is code of a JIT compiler, such as V8's builtins, which keep frame pointers.
 */
#define FLOW_BYTES_MAX (1u << 20)

/* Bytes of the uncovered ranges that hold calls; at most UINT32_MAX. Pure. */
uint32_t unwind_flow_uncovered(const struct cfi_rows *rows, const struct unwind_codes *codes);
/*
 * Adds rows for the uncovered ranges of rows, which unwind_flow_uncovered() says have so many
 * bytes. *derived: the calls that got a rule. Pure. 0; -ENOMEM.
 */
int unwind_flow_add(struct cfi_rows *rows, const struct unwind_codes *codes, uint32_t bytes,
		    uint32_t *derived);
