/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "unwind/cfi.h"
#include "unwind/compact.h"
#include "unwind/flow.h"
#include "unwind/input.h"
#include "unwind/table_parts.h"

int unwind_table_build(struct unwind_table **out, int fd, int debug_fd, uint32_t which)
{
	uint64_t begin_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	struct unwind_origin origin;
	struct unwind_input input;
	struct cfi_rows rows = {0};
	int err = unwind_input_read(&input, fd, debug_fd);

	if (err)
		return err;
	err = cfi_rows_read(&rows, input.section, input.section_vaddr, input.frames,
			    input.frame_count);
	origin = (struct unwind_origin){.functions = (uint32_t)input.frame_count,
					.cut = rows.cut,
					.rows = (uint32_t)rows.count,
					.uncovered = unwind_flow_uncovered(&rows, &input.codes)};
	if (!err && which == ABI_UNWIND_ROWS_CALLS)
		err = unwind_flow_add(&rows, &input.codes, origin.uncovered, &origin.derived);
	if (!err)
		err = unwind_compact(out, &rows, &input.codes, which, &origin);
	if (!err)
		(*out)->origin.took_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin_ns;
	cfi_rows_free(&rows);
	unwind_input_free(&input);
	return err;
}

void unwind_table_free(struct unwind_table *table)
{
	free(table);
}

size_t unwind_table_bytes(const struct unwind_table *table)
{
	return (table->page_count + (size_t)1) * sizeof(*table->pages) +
	       table->row_count * sizeof(*table->rows) + table->rule_count * sizeof(*table->rules);
}

uint32_t *unwind_table_pages(struct unwind_table *table)
{
	return (uint32_t *)(table + 1);
}

struct abi_unwind_row *unwind_table_rows(struct unwind_table *table)
{
	return (struct abi_unwind_row *)(unwind_table_pages(table) + table->page_count + 1);
}

struct abi_unwind_rule *unwind_table_rules(struct unwind_table *table)
{
	return (struct abi_unwind_rule *)(unwind_table_rows(table) + table->row_count);
}

static void arrays_set(struct unwind_table *table)
{
	table->pages = unwind_table_pages(table);
	table->rows = unwind_table_rows(table);
	table->rules = unwind_table_rules(table);
}

int unwind_table_new(struct unwind_table **out, const struct unwind_table *sizes)
{
	struct unwind_table *table = calloc(1, sizeof(*table) + unwind_table_bytes(sizes));

	if (!table)
		return -ENOMEM;
	*table = *sizes;
	arrays_set(table);
	*out = table;
	return 0;
}

const struct abi_unwind_rule *unwind_table_find(const struct unwind_table *table, uint64_t offset)
{
	uint64_t page = (offset >> ABI_UNWIND_PAGE_BITS) - table->first_page;
	uint32_t low, high, first;

	if (page >= table->page_count)
		return &table->rules[0];
	first = low = table->pages[page];
	high = table->pages[page + 1];
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (table->rows[middle].low <= (uint16_t)offset)
			low = middle + 1;
		else
			high = middle;
	}
	return &table->rules[low > first ? table->rows[low - 1].rule : 0];
}

const void *unwind_table_pack(const struct unwind_table *table, size_t *size)
{
	*size = sizeof(*table) + unwind_table_bytes(table);
	return table;
}

static int counts_are_valid(const struct unwind_table *table)
{
	return table->page_count && table->page_count <= UNWIND_PAGES_MAX &&
	       table->first_page <= UINT32_MAX - table->page_count &&
	       table->row_count <= UNWIND_ROWS_MAX && table->rule_count &&
	       table->rule_count <= ABI_UNWIND_RULES_MAX;
}

/* Are the rows of a page in order? */
static int page_is_valid(const struct unwind_table *table, uint32_t page)
{
	uint32_t first = table->pages[page], end = table->pages[page + 1];

	if (first > end || end > table->row_count)
		return 0;
	for (uint32_t i = first; i < end; i++)
		if (table->rows[i].rule >= table->rule_count ||
		    (i > first && table->rows[i - 1].low >= table->rows[i].low))
			return 0;
	return 1;
}

static int table_is_valid(const struct unwind_table *table)
{
	static const struct abi_unwind_rule none;

	if (table->pages[0] || table->pages[table->page_count] != table->row_count ||
	    memcmp(&table->rules[0], &none, sizeof(none)))
		return 0;
	for (uint32_t i = 0; i < table->page_count; i++)
		if (!page_is_valid(table, i))
			return 0;
	for (uint32_t i = 0; i < table->rule_count; i++)
		if (table->rules[i].kind >= ABI_UNWIND_KIND_COUNT ||
		    table->rules[i].flags & ~(ABI_UNWIND_RBP_AT_RBP | ABI_UNWIND_RETURN_ALONE))
			return 0;
	return 1;
}

int unwind_table_unpack(struct unwind_table **out, const void *bytes, size_t size)
{
	struct unwind_table *table;
	struct unwind_table sizes;

	if (size < sizeof(sizes))
		return -EPROTO;
	memcpy(&sizes, bytes, sizeof(sizes));
	if (!counts_are_valid(&sizes) || size - sizeof(sizes) != unwind_table_bytes(&sizes))
		return -EPROTO;
	table = malloc(size);
	if (!table)
		return -ENOMEM;
	memcpy(table, bytes, size);
	arrays_set(table);
	if (!table_is_valid(table)) {
		unwind_table_free(table);
		return -EPROTO;
	}
	*out = table;
	return 0;
}
