/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe sites for perf maps in one ELF file: CPython's PyUnstable_* functions, GDB's JIT interface,
 * and functions with the same arguments that the user names. Pure, as plan.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "probe/python/plan.h"

/*
 * --perf-map-symbol FILE:SYMBOL[:addr=ARG,size=ARG,name=ARG]. ARG counts the integer arguments from
 * 1.
 */
struct perfmap_symbol {
	char *file;                    /* see function_option_is_in() */
	char *symbol;                  /* owned, as file is */
	unsigned address, bytes, name; /* 1-6 */
};

/* 0; -EINVAL (error_set); -ENOMEM. perfmap_symbol_free() releases. */
int perfmap_symbol_parse(const char *text, struct perfmap_symbol *out);
void perfmap_symbol_free(struct perfmap_symbol *symbol);
/* Is the symbol in the file of that path? */
bool perfmap_symbol_is_in(const struct perfmap_symbol *symbol, const char *path);

struct perfmap_plan {
	struct plan sites;
	int has_python; /* the file has PyUnstable_WritePerfMapEntry() */
	/* vaddr of __jit_debug_descriptor; 0: none, or no function signals its changes */
	uint64_t descriptor;
};

/*
 * Plans the sites that the file has; a file with none is no error. symbols: the user's symbols that
 * are in this file. 0; -ENOMEM; -ENOENT the file lacks one of the user's symbols (error_set).
 */
int perfmap_plan(struct elf_file *file, const struct perfmap_symbol *const *symbols, size_t count,
		 struct perfmap_plan *out);
void perfmap_plan_free(struct perfmap_plan *plan);
