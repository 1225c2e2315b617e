/* SPDX-License-Identifier: Apache-2.0 */
/* Private to table.c, compact.c: tables that are being filled. */
#ifndef TRACER_UNWIND_TABLE_PARTS_H
#define TRACER_UNWIND_TABLE_PARTS_H

#include "unwind/table.h"

/* A zeroed table with the counts and the origin of sizes. 0; -ENOMEM. */
int unwind_table_new(struct unwind_table **out, const struct unwind_table *sizes);
uint32_t *unwind_table_pages(struct unwind_table *table);
struct abi_unwind_row *unwind_table_rows(struct unwind_table *table);
struct abi_unwind_rule *unwind_table_rules(struct unwind_table *table);

#endif
