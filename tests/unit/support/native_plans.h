/* SPDX-License-Identifier: Apache-2.0 */
/* A probe plan for native functions, and its expected content. */
#pragma once

#include <string.h>

#include "abi/events.h"
#include "assembly.h"
#include "probe/malloc/plan_native.h"

#define NONE ABI_REG_COUNT

/* An exported function. */
#define FUNCTION(name, body)                                                                       \
	".globl " name "\n.type " name ", @function\n" name ":\n" body "\n.size " name ", .-" name \
	"\n"

static inline struct elf_file *library(const char *text)
{
	return assembly_open("", ".text\n%s", text);
}

static inline const struct plan_site *site_of(const struct plan *plan, const char *symbol,
					      enum abi_op op)
{
	for (size_t i = 0; i < plan->count; i++)
		if (plan->sites[i].op == op && !strcmp(plan->sites[i].symbol, symbol))
			return &plan->sites[i];
	return NULL;
}

static inline void expect_site(const struct plan *plan, const char *symbol, enum abi_op op,
			       uint32_t r0, uint32_t r1, uint32_t r2, int with_return)
{
	const struct plan_site *site = site_of(plan, symbol, op);

	if (!site)
		fail_msg("no site in %s", symbol);
	assert_int_equal(site->cookie, ABI_COOKIE(op, EVENT_API_NATIVE, r0, r1, r2));
	assert_int_equal(site->with_return, with_return);
}

static inline void expect_missing(const struct plan *plan, const char *symbol, const char *why)
{
	for (size_t i = 0; i < plan->missing_count; i++)
		if (!strcmp(plan->missing[i].symbol, symbol)) {
			assert_non_null(strstr(plan->missing[i].why, why));
			return;
		}
	fail_msg("%s is not missing", symbol);
}
