/* SPDX-License-Identifier: Apache-2.0 */
/* Sites in functions that have a name: what the planner's parts share. */
#pragma once

#include "object/elf/elf_file.h"
#include "probe/python/plan.h"

#define PLAN_NAME_SIZE sizeof(((struct plan_site *)0)->symbol)

/*
 * The most sites that are in functions: three domains, their implementations and hooks, and the
 * single functions.
 */
#define PLAN_MAX_ENTRIES 48

/*
 * enum abi_register of a function's integer argument, counted from 1 to 6; 0 means no argument and
 * gives ABI_REG_COUNT.
 */
uint32_t plan_argument_register(unsigned argument);
/* Adds a symbol without a site to plan->missing. Does nothing if there is no memory. */
void plan_missing_add(struct plan *plan, const char *symbol, const char *why);
/*
 * Makes a census plan an exact one, with the reason: some frees of large blocks cannot be told from
 * the frees that census mode leaves out.
 */
void plan_census_refuse(struct plan *plan);
/*
 * Finds the function of that name. Link-time optimisation renames a static function to
 * NAME.lto_priv.N without changing it. The other clones have lost arguments or a part of the body,
 * and some calls do not go through them. Returns NULL and fills *out, or returns why the function
 * is missing.
 */
const char *plan_function_find(struct elf_file *file, const char *name, struct elf_symbol *out);
/*
 * Adds a site in the function at vaddr, of size bytes (0: unknown), or a missing symbol. 0 or
 * -ENOMEM.
 */
int plan_function_add(struct plan *plan, struct elf_file *file, const struct probe_spec *spec,
		      uint64_t vaddr, uint64_t size);
/* The same for the function that the spec names. */
int plan_symbol_add(struct plan *plan, struct elf_file *file, const struct probe_spec *spec);
