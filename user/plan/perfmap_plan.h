/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where perf maps are written, in one ELF file: CPython's PyUnstable_* functions, GDB's JIT
 * interface, and functions of the same shape that the user names. Pure, as plan.h.
 */
#ifndef TRACER_PLAN_PERFMAP_PLAN_H
#define TRACER_PLAN_PERFMAP_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

/*
 * --perf-map-symbol FILE:SYMBOL[:addr=ARG,size=ARG,name=ARG]; ARG counts the integer arguments from
 * 1.
 */
struct perfmap_symbol {
	char *file;                    /* see function_option_is_in() */
	char *symbol;                  /* owned, as is file */
	unsigned address, bytes, name; /* 1-6 */
};

/* 0; -EINVAL (error_set); -ENOMEM. perfmap_symbol_free() releases. */
int perfmap_symbol_parse(const char *text, struct perfmap_symbol *out);
void perfmap_symbol_free(struct perfmap_symbol *symbol);
/* Is it this file, of that path? */
int perfmap_symbol_is_in(const struct perfmap_symbol *symbol, const char *path);

struct perfmap_plan {
	struct plan sites;
	int has_python; /* PyUnstable_WritePerfMapEntry() is in the file */
	uint64_t
		/*
		 * vaddr of __jit_debug_descriptor; 0: none, or nobody there who says when it
		 * changes
		 */
		descriptor;
};

/*
 * What the file has of all that; nothing of it is no error. symbols: those of the user's that are
 * in this file. 0, -ENOMEM; -ENOENT a symbol of the user's is not in there (error_set).
 */
int perfmap_plan(struct elf_file *file, const struct perfmap_symbol *const *symbols, size_t count,
		 struct perfmap_plan *out);
void perfmap_plan_free(struct perfmap_plan *plan);

#endif
