/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyUnstable_WritePerfMapEntry() takes its size as an unsigned int or, according to the manual from
 * 3.13 on, as a size_t. For an unsigned int the upper half of the register is undefined. The
 * function's own code shows the width: the first instruction that reads the argument reads either
 * the whole register or its lower half. (3.13.0 and 3.14 read half.)
 */
#include "probe/python/perfmap_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "object/elf/elf_file.h"
#include "probe/place/function_entry.h"
#include "probe/python/function_option.h"
#include "probe/python/plan_symbol.h"
#include "util/array.h"
#include "util/error.h"

#define NO_ARGUMENT ABI_REG_COUNT

static const struct probe_spec python[] = {
	{"PyUnstable_WritePerfMapEntry",
	 ABI_OP_MAP_WRITE,
	 0,
	 {ABI_ARGUMENT_1, ABI_ARGUMENT_2, ABI_ARGUMENT_3},
	 0},
	{"PyUnstable_PerfMapState_Init",
	 ABI_OP_MAP_INIT,
	 0,
	 {NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT},
	 1},
	{"PyUnstable_PerfMapState_Fini",
	 ABI_OP_MAP_FINI,
	 0,
	 {NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT},
	 0},
	{"PyUnstable_CopyPerfMapFile",
	 ABI_OP_MAP_COPY,
	 0,
	 {ABI_ARGUMENT_1, NO_ARGUMENT, NO_ARGUMENT},
	 0},
	{"PyUnstable_PerfTrampoline_CompileCode",
	 ABI_OP_MAP_COMPILE,
	 0,
	 {ABI_ARGUMENT_1, NO_ARGUMENT, NO_ARGUMENT},
	 0},
	{"PyUnstable_PerfTrampoline_SetPersistAfterFork",
	 ABI_OP_MAP_PERSIST,
	 0,
	 {ABI_ARGUMENT_1, NO_ARGUMENT, NO_ARGUMENT},
	 0},
};

static const struct probe_spec jit = {
	"__jit_debug_register_code", ABI_OP_MAP_JIT, 0, {NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT}, 0};

void perfmap_symbol_free(struct perfmap_symbol *symbol)
{
	free(symbol->file);
	free(symbol->symbol);
	*symbol = (struct perfmap_symbol){0};
}

int perfmap_symbol_parse(const char *text, struct perfmap_symbol *out)
{
	struct perfmap_symbol symbol = {.address = 1, .bytes = 2, .name = 3};
	const struct function_argument keys[] = {
		{"addr", &symbol.address}, {"size", &symbol.bytes}, {"name", &symbol.name}};
	const char *rest;
	int err = function_option_split(text, &symbol.file, &symbol.symbol, &rest);

	if (!err && rest)
		err = function_option_arguments(rest, keys, ARRAY_SIZE(keys));
	if (err) {
		perfmap_symbol_free(&symbol);
		return err == -ENOMEM
			       ? err
			       : error_set(-EINVAL,
					   "\"%s\" is not FILE:SYMBOL[:addr=ARG,size=ARG,name=ARG] "
					   "with three arguments of 1-6",
					   text);
	}
	*out = symbol;
	return 0;
}

bool perfmap_symbol_is_in(const struct perfmap_symbol *symbol, const char *path)
{
	return function_option_is_in(symbol->file, path);
}

static int jit_plan(struct elf_file *file, struct perfmap_plan *plan)
{
	struct elf_symbol descriptor;

	if (elf_file_symbol(file, "__jit_debug_descriptor", &descriptor) || descriptor.tls)
		return 0;
	int err = probe_spec_add(&plan->sites, file, &jit);
	if (err == -ENOENT || err == -EEXIST)
		return 0;
	if (!err) {
		struct plan_site *site = &plan->sites.sites[plan->sites.count - 1];

		site->cookie = ABI_OP_MAP_JIT | (descriptor.vaddr - site->vaddr) << 8;
		plan->descriptor = descriptor.vaddr;
	}
	return err;
}

/* A function like PyUnstable_WritePerfMapEntry(). The site's cookie says how wide the size is. */
static int write_plan(struct elf_file *file, const struct probe_spec *spec,
		      struct perfmap_plan *plan)
{
	int err = probe_spec_add(&plan->sites, file, spec);
	uint8_t code[256];

	if (err)
		return err;
	struct plan_site *site = &plan->sites.sites[plan->sites.count - 1];
	int bytes = elf_file_read(file, site->vaddr - site->in_function, code, sizeof(code));
	if (bytes > 0 &&
	    function_argument_is_32(machine_own(), code, (size_t)bytes, spec->arguments[1]))
		site->cookie |= ABI_MAP_BYTES_32 << 8;
	return 0;
}

static int symbol_plan(struct elf_file *file, const struct perfmap_symbol *symbol,
		       struct perfmap_plan *plan)
{
	struct probe_spec spec = {.symbol = symbol->symbol,
				  .op = ABI_OP_MAP_WRITE,
				  .arguments = {plan_argument_register(symbol->address),
						plan_argument_register(symbol->bytes),
						plan_argument_register(symbol->name)}};
	int err = write_plan(file, &spec, plan);

	/* Named twice, or an alias: already probed. */
	if (err == -EEXIST)
		return 0;
	return err == -ENOENT ? error_set(err, "%s has no function %s", elf_file_path(file),
					  symbol->symbol)
			      : err;
}

int perfmap_plan(struct elf_file *file, const struct perfmap_symbol *const *symbols, size_t count,
		 struct perfmap_plan *out)
{
	struct perfmap_plan plan = {0};
	int err = write_plan(file, &python[0], &plan);

	plan.has_python = !err;
	for (size_t i = 1; i < ARRAY_SIZE(python) && plan.has_python; i++) {
		err = probe_spec_add(&plan.sites, file, &python[i]);
		if (err && err != -ENOENT && err != -EEXIST)
			goto fail;
	}
	if (err == -ENOENT || err == -EEXIST)
		err = 0;
	err = err ?: jit_plan(file, &plan);
	for (size_t i = 0; i < count && !err; i++)
		err = symbol_plan(file, symbols[i], &plan);
	if (err)
		goto fail;
	*out = plan;
	return 0;
fail:
	perfmap_plan_free(&plan);
	return err;
}

void perfmap_plan_free(struct perfmap_plan *plan)
{
	plan_free(&plan->sites);
}
