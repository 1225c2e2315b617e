/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check in _Py_NewReference whether objects are traced. Each copy of it begins with
 *
 * 	up to 3.12	if (tracemalloc's config.tracing) _PyTraceMalloc_NewReference(object);
 * 	from 3.13 on	if (_PyRuntime.ref_tracer.tracer_func)
 * 				tracer_func(object, CREATE, tracer_data);
 *
 * The branch of this check is the site: its rarely taken path passes the object to the tracer.
 * Internal to the analysis of inlined allocators.
 */
#ifndef TRACER_PYMALLOC_GUARD_H
#define TRACER_PYMALLOC_GUARD_H

#include <stdint.h>

#include "machine/code.h"
#include "machine/value.h"

#define INLINE_GUARD_ANY    UINT64_MAX
#define INLINE_GUARD_TRACER 0 /* instead of a callee: the function that the flag holds */

struct inline_guard {
	uint64_t site;
	uint64_t callee;
	int64_t event; /* of INLINE_GUARD_TRACER: the event argument */
	uint8_t reg;   /* the object is in reg plus addend; ABI_REG_COUNT: in no register */
	int64_t addend;
};

/* Where code begins to read the flag, and a register that holds a known value there. */
struct inline_reader {
	uint64_t vaddr;
	uint8_t base; /* ABI_REG_COUNT: none */
	struct inline_value held;
};

/*
 * Does the instruction at the reader read the flag, or load the address through which the flag is
 * read next, and does a guard follow? callee: the function that it calls, or INLINE_GUARD_ANY: then
 * any tail call is accepted.
 */
int inline_guard_match(struct inline_code *code, const struct inline_reader *reader,
		       const struct inline_address *flag, uint64_t callee,
		       struct inline_guard *out);
/*
 * Finds the flag that _Py_NewReference, which begins at vaddr, checks first, and the function that
 * it calls with its argument. 0; -ENOENT.
 */
int inline_guard_seed(struct inline_code *code, uint64_t vaddr, struct inline_address *flag,
		      uint64_t *callee);

#endif
