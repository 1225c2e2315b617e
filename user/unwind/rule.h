/* SPDX-License-Identifier: Apache-2.0 */
/* What libdw says of a frame, as a rule of an unwind table. */
#ifndef TRACER_UNWIND_RULE_H
#define TRACER_UNWIND_RULE_H

#include <elfutils/libdw.h>

#include "abi/unwind.h"

/*
 * A rule without a kind that is not rule 0: the address is covered, but no kind can express how
 * its frame is unwound, for example a CFA that is relative to r10.
 */
#define UNWIND_RULE_ODD ((struct abi_unwind_rule){.cfa = -1})

/* The rule of a frame; UNWIND_RULE_ODD if no kind expresses it or libdw fails. */
struct abi_unwind_rule unwind_rule_of(Dwarf_Frame *frame);
static inline int unwind_rule_equal(struct abi_unwind_rule a, struct abi_unwind_rule b)
{
	return a.cfa == b.cfa && a.rbp == b.rbp && a.kind == b.kind && a.flags == b.flags;
}

#endif
