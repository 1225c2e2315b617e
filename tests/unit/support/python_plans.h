/* SPDX-License-Identifier: Apache-2.0 */
/* What a probe plan for Python's allocators contains. */
#pragma once

#include <string.h>

#include "probe/python/plan.h"

static inline const struct plan_site *find(const struct plan *plan, const char *symbol)
{
	for (size_t i = 0; i < plan->count; i++)
		if (strcmp(plan->sites[i].symbol, symbol) == 0)
			return &plan->sites[i];
	return NULL;
}

/*
 * Sites of functions. An interpreter's shutdown has one site for each piece of its heap. Only the
 * first of them is counted.
 */
static inline size_t functions_of(const struct plan *plan)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->count; i++)
		count += plan->sites[i].op != ABI_OP_FINALIZE ||
			 find(plan, plan->sites[i].symbol) == &plan->sites[i];
	return count;
}

/*
 * Missing functions. Exported functions whose code leads to no probed site are not counted, since
 * none leads to one in these libraries.
 */
static inline size_t missing_of(const struct plan *plan)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->missing_count; i++)
		count += strcmp(plan->missing[i].why, "its code does not lead to a probed site") !=
			 0;
	return count;
}
