/* SPDX-License-Identifier: Apache-2.0 */
/* Sites in functions that have a name: what the parts of the planner share. */
#ifndef TRACER_PLAN_PLAN_SYMBOL_H
#define TRACER_PLAN_PLAN_SYMBOL_H

#include "elf/elf_file.h"
#include "plan/plan.h"

#define PLAN_NAME_SIZE sizeof(((struct plan_site *)0)->symbol)

/*
 * Sites that there can be in functions: three domains, their implementations and hooks, and the
 * singles.
 */
#define PLAN_MAX_ENTRIES 48

/*
 * enum abi_register of a function's integer argument, counted from 1 to 6; of 0, no argument,
 * ABI_REG_COUNT.
 */
uint32_t plan_argument_register(unsigned argument);
/* Notes what has no site; where there is no memory for the note there is none. */
void plan_missing_add(struct plan *plan, const char *symbol, const char *why);
/*
 * The function of that name. Link-time optimisation renames a static function to NAME.lto_priv.N
 * and leaves it as it is; the other clones have lost arguments or a part of the body, and calls
 * that do not go through them. Returns NULL and *out, or why it is missing.
 */
const char *plan_function_find(struct elf_file *file, const char *name, struct elf_symbol *out);
/*
 * Adds a site in the function at vaddr, of so many bytes (0: not known), or a missing symbol. 0 or
 * -ENOMEM.
 */
int plan_function_add(struct plan *plan, struct elf_file *file, const struct plan_wish *wish,
		      uint64_t vaddr, uint64_t size);
/* The same for the function that the wish names. */
int plan_symbol_add(struct plan *plan, struct elf_file *file, const struct plan_wish *wish);

#endif
