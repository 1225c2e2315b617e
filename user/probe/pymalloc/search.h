/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the search for sites. Internal to the search. */
#pragma once

#include <stdbool.h>

#include "object/insn/code.h"
#include "probe/pymalloc/sites.h"

#define INLINE_REFILLS   16
#define INLINE_NO_REFILL "the function called when the pool is empty is unknown"

struct inline_search {
	struct inline_code code;
	struct inline_sites *out;
	struct {
		uint64_t vaddr;
		uint32_t calls;
	} refills[INLINE_REFILLS];
	size_t refill_count;
	/* sites of copies that make pools themselves, the first INLINE_REFILLS */
	uint64_t own[INLINE_REFILLS];
	size_t own_count;
	uint64_t pool_bits;
	/* the body of _Py_NewReference, after functions that only jump there; 0: none */
	uint64_t new_reference;
};

/* why: static. */
void inline_give_up(struct inline_search *search, enum inline_kind kind, uint64_t vaddr,
		    const char *why);
/* Is there an instruction of a function at vaddr? *err becomes -ENOMEM if there is no memory. */
bool inline_is_instruction(struct inline_search *search, uint64_t vaddr, int *err);
/* Copies the site and adds its instruction. 0; -ENOTSUP there are too many; -ENOMEM. */
int inline_site_add(struct inline_search *search, const struct plan_site *site);

/*
 * The slot that the stub at vaddr jumps through (`jmp *slot`, perhaps after an endbr64); 0: no
 * stub.
 */
uint64_t inline_stub_slot(const struct inline_image *image, uint64_t vaddr);
/*
 * Where tracemalloc allocates and frees its own records (probe/pymalloc/records.c). 0, also if that
 * is not found; -ENOMEM.
 */
int inline_records_find(struct inline_search *search);
/*
 * Sites where objects begin to live (probe/pymalloc/objects.c). 0, also if there are none; or as
 * inline_site_add().
 */
int inline_objects_find(struct inline_search *search);
