/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the search for sites. Internal to it. */
#ifndef TRACER_PYMALLOC_SEARCH_H
#define TRACER_PYMALLOC_SEARCH_H

#include "pymalloc/sites.h"
#include "x86/code.h"

#define INLINE_REFILLS 16

struct inline_search {
	struct inline_code code;
	struct inline_sites *out;
	struct {
		uint64_t vaddr;
		uint32_t calls;
	} refills[INLINE_REFILLS];
	size_t refill_count;
	/* sites of copies that call no such function, the first of them */
	uint64_t own[INLINE_REFILLS];
	size_t own_count;
	uint64_t pool_bits;
	uint64_t
		/* where _Py_NewReference begins, behind what only jumps there; 0: there is none */
		new_reference;
};

/* why: static. */
void inline_give_up(struct inline_search *search, enum inline_kind kind, uint64_t vaddr,
		    const char *why);
/*
 * Is there an instruction of a function at vaddr? Where there is no memory to tell, *err is
 * -ENOMEM.
 */
int inline_is_instruction(struct inline_search *search, uint64_t vaddr, int *err);
/* Copies the site, with what its instruction is. 0; -ENOTSUP: there are too many; -ENOMEM. */
int inline_site_add(struct inline_search *search, const struct plan_site *site);

/*
 * The slot that the stub at vaddr jumps through (`jmp *slot`, perhaps with an endbr64 before it);
 * 0: there is no stub.
 */
uint64_t inline_stub_slot(const struct inline_image *image, uint64_t vaddr);
/*
 * Does only an object in a new block begin to live at site, whose function was decoded last? reg:
 * where it is.
 */
int inline_is_new(struct inline_code *code, uint64_t site, uint8_t reg);
/* Where calls that ask for large blocks through a slot return to (pymalloc/large.c). 0; -ENOMEM. */
int inline_large_find(struct inline_search *search);
/*
 * The places where objects begin to live (pymalloc/objects.c). 0, also where there are none; or as
 * above.
 */
int inline_objects_find(struct inline_search *search);
/*
 * Where _Py_NewReference is called rather than inlined, its calls take its own site's place, but
 * those where only new objects come (pymalloc/object_calls.c). 0, also where nothing is changed; or
 * as above.
 */
int inline_object_calls(struct inline_search *search);

#endif
