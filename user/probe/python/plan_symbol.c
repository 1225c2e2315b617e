/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/python/plan_symbol.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "probe/place/function_entry.h"
#include "util/array.h"

#define MAX_CLONE 8 /* clones of a function that are tried: NAME.lto_priv.0 to .7 */

uint32_t plan_argument_register(unsigned argument)
{
	static const uint32_t registers[] = {ABI_REG_COUNT,  ABI_ARGUMENT_1, ABI_ARGUMENT_2,
					     ABI_ARGUMENT_3, ABI_ARGUMENT_4, ABI_ARGUMENT_5,
					     ABI_ARGUMENT_6};

	return argument < ARRAY_SIZE(registers) ? registers[argument] : ABI_REG_COUNT;
}

void plan_missing_add(struct plan *plan, const char *symbol, const char *why)
{
	if (ARRAY_GROW(plan->missing, plan->missing_capacity, plan->missing_count)) {
		plan->missing_dropped = 1;
		return;
	}
	snprintf(plan->missing[plan->missing_count].symbol, PLAN_NAME_SIZE, "%s", symbol);
	snprintf(plan->missing[plan->missing_count].why, sizeof(plan->missing[0].why), "%s", why);
	plan->missing_count++;
}

void plan_census_refuse(struct plan *plan)
{
	if (plan->mode != EVENT_MODE_CENSUS)
		return;
	plan->mode = EVENT_MODE_EXACT;
	snprintf(plan->mode_why, sizeof(plan->mode_why),
		 "the frees of large blocks cannot be told from others in this file");
}

/* The number of clones "NAME.KIND.N", and in *out the last one. */
static int find_clones(struct elf_file *file, const char *name, const char *kind,
		       struct elf_symbol *out)
{
	char clone[PLAN_NAME_SIZE + 32];
	int count = 0;

	for (int i = 0; i < MAX_CLONE; i++) {
		snprintf(clone, sizeof(clone), "%s.%s.%d", name, kind, i);
		count += elf_file_symbol(file, clone, out) == 0;
	}
	return count;
}

const char *plan_function_find(struct elf_file *file, const char *name, struct elf_symbol *out)
{
	static const char *const kinds[] = {"constprop", "part", "isra"};
	static const char *const reasons[] = {
		"only a clone with other arguments is there (.constprop)",
		"only a part split off it is there (.part)",
		"only a clone with other arguments is there (.isra)",
	};
	struct elf_symbol ignored;

	if (elf_file_symbol(file, name, out)) {
		int clones = find_clones(file, name, "lto_priv", out);

		if (clones > 1)
			return "several functions have this name (.lto_priv)";
		for (size_t i = 0; i < ARRAY_SIZE(kinds) && !clones; i++)
			if (find_clones(file, name, kinds[i], &ignored))
				return reasons[i];
		if (!clones)
			return "no such symbol";
	}
	return out->function && !out->ifunc && !out->tls ? NULL : "the symbol is not a function";
}

/*
 * The site that the function at vaddr has already: aliases are probed once. A site that was inlined
 * into the function does not count, unless spec and site are both of an object that begins to live:
 * the requests that the debugging hooks make themselves, inlined in them, are not the program's.
 */
static const struct plan_site *site_in(const struct plan *plan, uint64_t vaddr, enum abi_op op)
{
	for (size_t i = 0; i < plan->count; i++)
		if (plan->sites[i].vaddr - plan->sites[i].in_function == vaddr &&
		    (i >= plan->inlined_count || (op == ABI_OP_REUSE && plan->sites[i].op == op)))
			return &plan->sites[i];
	return NULL;
}

/*
 * Fills the site in the function at vaddr, of size bytes (0: unknown); the plan has capacity for
 * it. 0; -errno. *why is set for -ENOENT and, if the other function has another meaning, for
 * -EEXIST.
 */
static int fill_site(struct plan *plan, struct elf_file *file, const struct probe_spec *spec,
		     uint64_t vaddr, uint64_t size, const char **why)
{
	struct plan_site *site = &plan->sites[plan->count];
	uint8_t code[FUNCTION_MAX_CODE];

	*why = NULL;
	const struct plan_site *other = site_in(plan, vaddr, spec->op);
	if (other) {
		if (other->op != spec->op)
			*why = "it shares its code with a function of another meaning";
		return -EEXIST;
	}
	int bytes =
		elf_file_read(file, vaddr, code, size && size < sizeof(code) ? size : sizeof(code));
	if (bytes <= 0) {
		*why = "the file does not hold its code";
		return -ENOENT;
	}
	memset(site, 0, sizeof(*site));
	int err = function_entry_site(machine_own(), spec, code, (size_t)bytes, vaddr, site);
	if (err)
		return err;
	if (elf_file_offset(file, site->vaddr, &site->offset)) {
		*why = "its address is not in the file";
		return -ENOENT;
	}
	snprintf(site->symbol, sizeof(site->symbol), "%s", spec->symbol);
	plan->count++;
	return 0;
}

int probe_spec_add(struct plan *plan, struct elf_file *file, const struct probe_spec *spec)
{
	struct elf_symbol symbol;
	const char *why = plan_function_find(file, spec->symbol, &symbol);
	int err = why ? -ENOENT : ARRAY_GROW(plan->sites, plan->capacity, plan->count);

	return err ?: fill_site(plan, file, spec, symbol.vaddr, symbol.size, &why);
}

int plan_function_add(struct plan *plan, struct elf_file *file, const struct probe_spec *spec,
		      uint64_t vaddr, uint64_t size)
{
	const char *why = "too many sites";
	int err = plan->count == plan->capacity ? -ENOENT
						: fill_site(plan, file, spec, vaddr, size, &why);

	if (err != -ENOENT && err != -EEXIST)
		return err;
	if (why)
		plan_missing_add(plan, spec->symbol, why);
	return 0;
}

int plan_symbol_add(struct plan *plan, struct elf_file *file, const struct probe_spec *spec)
{
	struct elf_symbol symbol;
	const char *why = plan_function_find(file, spec->symbol, &symbol);

	if (!why)
		return plan_function_add(plan, file, spec, symbol.vaddr, symbol.size);
	plan_missing_add(plan, spec->symbol, why);
	return 0;
}
