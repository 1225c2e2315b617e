/* SPDX-License-Identifier: Apache-2.0 */
#include "object/unwind/unwind_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/unwind/calls.h"
#include "object/unwind/cfi.h"
#include "object/unwind/input.h"
#include "object/unwind/rule.h"
#include "object/unwind/unwind_flow.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/sorted.h"

/* Bytes that the pages, rows and rules take in BPF maps. */
static size_t unwind_table_bytes(const struct unwind_table *table)
{
	return (table->page_count + (size_t)1) * sizeof(*table->pages) +
	       table->row_count * sizeof(*table->rows) + table->rule_count * sizeof(*table->rules);
}

static uint32_t *unwind_table_pages(struct unwind_table *table)
{
	return (uint32_t *)(table + 1);
}

static struct abi_unwind_row *unwind_table_rows(struct unwind_table *table)
{
	return (struct abi_unwind_row *)(unwind_table_pages(table) + table->page_count + 1);
}

static struct abi_unwind_rule *unwind_table_rules(struct unwind_table *table)
{
	return (struct abi_unwind_rule *)(unwind_table_rows(table) + table->row_count);
}

static void arrays_set(struct unwind_table *table)
{
	table->pages = unwind_table_pages(table);
	table->rows = unwind_table_rows(table);
	table->rules = unwind_table_rules(table);
}

/* A zeroed table with the counts and the origin of sizes. 0; -ENOMEM. */
static int unwind_table_new(struct unwind_table **out, const struct unwind_table *sizes)
{
	struct unwind_table *table = calloc(1, sizeof(*table) + unwind_table_bytes(sizes));

	if (!table)
		return -ENOMEM;
	*table = *sizes;
	arrays_set(table);
	*out = table;
	return 0;
}

/* --- compact ---------------------------------------------------------------------------------- */

/* Selects the rows of a table from those of a file's CFI. Pure. */

#define BUCKETS    (2 * ABI_UNWIND_RULES_MAX)
#define PAGE_BYTES ((uint64_t)ABI_UNWIND_PAGE_BYTES)

struct place {
	uint64_t offset;
	uint16_t rule;
};

struct compact {
	const struct cfi_rows *from;
	const struct unwind_codes *codes;
	struct place *places; /* offset ascends, rules of neighbours differ */
	size_t count, capacity;
	struct abi_unwind_rule *rules; /* ABI_UNWIND_RULES_MAX */
	uint32_t *buckets;             /* index of a rule; 0: empty */
	uint32_t rule_count, odd;
	uint32_t which; /* enum abi_unwind_rows */
};

static uint64_t rule_hash(struct abi_unwind_rule rule)
{
	return hash_u64((uint32_t)rule.cfa | (uint64_t)(uint16_t)rule.rbp << 32 |
			(uint64_t)rule.kind << 48 | (uint64_t)rule.flags << 56);
}

/* Index of a rule; when there is no place for another one, that of UNWIND_RULE_ODD. */
static uint16_t rule_intern(struct compact *compact, struct abi_unwind_rule rule)
{
	uint64_t at = rule_hash(rule) % BUCKETS;
	uint32_t index;

	if (unwind_rule_equal(rule, compact->rules[0]))
		return 0;
	for (; (index = compact->buckets[at]); at = (at + 1) % BUCKETS)
		if (unwind_rule_equal(compact->rules[index], rule))
			return (uint16_t)index;
	/* The last place is kept for it. */
	if (compact->rule_count == ABI_UNWIND_RULES_MAX - 1 &&
	    !unwind_rule_equal(rule, UNWIND_RULE_ODD))
		return rule_intern(compact, UNWIND_RULE_ODD);
	index = compact->rule_count++;
	compact->rules[index] = rule;
	compact->buckets[at] = index;
	return (uint16_t)index;
}

static int place_append(struct compact *compact, uint64_t offset, struct abi_unwind_rule rule)
{
	uint16_t index = rule_intern(compact, rule);

	/* The end of a part, at which the next one begins. */
	if (compact->count && compact->places[compact->count - 1].offset == offset)
		compact->count--;
	if (compact->count ? compact->places[compact->count - 1].rule == index : !index)
		return 0;
	if (compact->count >= UNWIND_ROWS_MAX - UNWIND_PAGES_MAX)
		return error_set(-E2BIG, "more than %u rows to unwind by", UNWIND_ROWS_MAX);
	int err = ARRAY_GROW(compact->places, compact->capacity, compact->count);
	if (err)
		return err;
	compact->places[compact->count++] = (struct place){.offset = offset, .rule = index};
	compact->odd += unwind_rule_equal(compact->rules[index], UNWIND_RULE_ODD);
	return 0;
}

/* Can a frame's address lie in the row, or is it needed to tell where no row is? */
static bool is_needed(const struct compact *compact, const struct unwind_code *part,
		      struct abi_unwind_rule rule, uint64_t start, uint64_t end)
{
	if (compact->which == ABI_UNWIND_ROWS_ALL || rule.kind == ABI_UNWIND_SIGNAL)
		return 1;
	if (unwind_rule_equal(rule, compact->rules[0]) && end - start > UNWIND_PADDING_MAX)
		return 1;
	return unwind_calls_within(compact->codes, part, start, end);
}

/* Index of the first row above vaddr. */
static size_t row_above(const struct cfi_rows *from, uint64_t vaddr)
{
	return SORTED_ABOVE(from->rows, from->count, vaddr, vaddr);
}

static int part_append(struct compact *compact, const struct unwind_code *part)
{
	const struct cfi_rows *from = compact->from;
	uint64_t start = part->vaddr, last = part->vaddr + part->size, end;
	size_t next = row_above(from, start);
	int err = 0;

	for (; start < last && !err; start = end, next++) {
		struct abi_unwind_rule rule =
			next ? from->rows[next - 1].rule : (struct abi_unwind_rule){0};

		end = next < from->count && from->rows[next].vaddr < last ? from->rows[next].vaddr
									  : last;
		if (!is_needed(compact, part, rule, start, end))
			continue;
		if (unwind_rule_equal(rule, compact->rules[0]) && end - start >= UNWIND_BODY_MIN)
			rule.kind = ABI_UNWIND_FRAME;
		err = place_append(compact, part->offset + (start - part->vaddr), rule);
	}
	/* Padding at its end belongs to no function of the next part. */
	return err ? err
		   : place_append(compact, part->offset + part->size, (struct abi_unwind_rule){0});
}

static void table_fill(struct unwind_table *table, const struct compact *compact)
{
	uint32_t *pages = unwind_table_pages(table), count = 0;
	struct abi_unwind_row *rows = unwind_table_rows(table);
	uint16_t rule = 0;
	size_t at = 0;

	for (uint32_t page = 0; page < table->page_count; page++) {
		uint64_t start = (table->first_page + (uint64_t)page) * PAGE_BYTES;

		pages[page] = count;
		if (rule && (at == compact->count || compact->places[at].offset != start))
			rows[count++] = (struct abi_unwind_row){.rule = rule};
		for (; at < compact->count && compact->places[at].offset - start < PAGE_BYTES;
		     at++) {
			rule = compact->places[at].rule;
			rows[count++] = (struct abi_unwind_row){
				.low = (uint16_t)compact->places[at].offset, .rule = rule};
		}
	}
	pages[table->page_count] = count;
}

/* Rows that repeat a rule at the begin of a page. */
static uint32_t repeated_rows(const struct compact *compact)
{
	uint32_t count = 0;

	for (size_t i = 0; i + 1 < compact->count; i++) {
		uint64_t next = compact->places[i + 1].offset;

		if (compact->places[i].rule)
			count += (uint32_t)((next - 1) / PAGE_BYTES -
					    compact->places[i].offset / PAGE_BYTES);
	}
	return count;
}

static int table_make(struct unwind_table **out, const struct compact *compact,
		      const struct unwind_origin *origin)
{
	struct unwind_table sizes = {.origin = *origin, .rule_count = compact->rule_count};

	if (!compact->count)
		return error_set(-ENOENT, "no code is covered by .eh_frame");
	uint64_t first = compact->places[0].offset / PAGE_BYTES;
	uint64_t last = compact->places[compact->count - 1].offset / PAGE_BYTES;
	if (last - first >= UNWIND_PAGES_MAX || last > UINT32_MAX)
		return error_set(-E2BIG, "code is spread over more than 4 GiB of the file");
	sizes.first_page = (uint32_t)first;
	sizes.page_count = (uint32_t)(last - first) + 1;
	sizes.row_count = (uint32_t)compact->count + repeated_rows(compact);
	sizes.origin.odd = compact->odd;
	int err = unwind_table_new(out, &sizes);
	if (err)
		return err;
	table_fill(*out, compact);
	memcpy(unwind_table_rules(*out), compact->rules,
	       compact->rule_count * sizeof(*compact->rules));
	return 0;
}

/*
 * which: enum abi_unwind_rows. origin is copied, with odd set. codes: the parts ascend by offset
 * and do not overlap in the file.
 * 0: the caller frees *out; -ENOENT: no row is left; -E2BIG; -ENOMEM.
 */
static int unwind_compact(struct unwind_table **out, const struct cfi_rows *rows,
			  const struct unwind_codes *codes, uint32_t which,
			  const struct unwind_origin *origin)
{
	struct compact compact = {.from = rows, .codes = codes, .which = which, .rule_count = 1};
	int err = 0;

	compact.rules = calloc(ABI_UNWIND_RULES_MAX, sizeof(*compact.rules));
	compact.buckets = calloc(BUCKETS, sizeof(*compact.buckets));
	if (!compact.rules || !compact.buckets)
		err = -ENOMEM;
	for (size_t i = 0; i < codes->count && !err; i++)
		err = part_append(&compact, &codes->parts[i]);
	err = err ?: table_make(out, &compact, origin);
	free(compact.places);
	free(compact.buckets);
	free(compact.rules);
	return err;
}

/* --- unwind table ----------------------------------------------------------------------------- */

int unwind_table_build(struct unwind_table **out, int fd, int debug_fd, uint32_t which)
{
	uint64_t begin_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	struct unwind_input input;
	struct cfi_rows rows = {0};
	int err = unwind_input_read(&input, fd, debug_fd);

	if (err)
		return err;
	err = cfi_rows_read(&rows, input.section, input.section_vaddr, input.frames,
			    input.frame_count);
	struct unwind_origin origin =
		(struct unwind_origin){.functions = (uint32_t)input.frame_count,
				       .cut = rows.cut,
				       .rows = (uint32_t)rows.count,
				       .uncovered = unwind_flow_uncovered(&rows, &input.codes)};
	if (!err && which == ABI_UNWIND_ROWS_CALLS)
		err = unwind_flow_add(&rows, &input.codes, origin.uncovered, &origin.derived);
	err = err ?: unwind_compact(out, &rows, &input.codes, which, &origin);
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

static bool counts_are_valid(const struct unwind_table *table)
{
	return table->page_count && table->page_count <= UNWIND_PAGES_MAX &&
	       table->first_page <= UINT32_MAX - table->page_count &&
	       table->row_count <= UNWIND_ROWS_MAX && table->rule_count &&
	       table->rule_count <= ABI_UNWIND_RULES_MAX;
}

/* Are the rows of a page in order? */
static bool page_is_valid(const struct unwind_table *table, uint32_t page)
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

static bool table_is_valid(const struct unwind_table *table)
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
	struct unwind_table sizes;

	if (size < sizeof(sizes))
		return -EPROTO;
	memcpy(&sizes, bytes, sizeof(sizes));
	if (!counts_are_valid(&sizes) || size - sizeof(sizes) != unwind_table_bytes(&sizes))
		return -EPROTO;
	struct unwind_table *table = malloc(size);
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
