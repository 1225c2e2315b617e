/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/compact.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/sorted.h"
#include "unwind/rule.h"
#include "unwind/table_parts.h"

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
	uint32_t rule_count;
	uint32_t odd;
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
	int err;

	/* The end of a part, at which the next one begins. */
	if (compact->count && compact->places[compact->count - 1].offset == offset)
		compact->count--;
	if (compact->count ? compact->places[compact->count - 1].rule == index : !index)
		return 0;
	if (compact->count >= UNWIND_ROWS_MAX - UNWIND_PAGES_MAX)
		return error_set(-E2BIG, "more than %u rows to unwind by", UNWIND_ROWS_MAX);
	err = array_reserve(&compact->places, &compact->capacity, compact->count, 1,
			    sizeof(*compact->places));
	if (err)
		return err;
	compact->places[compact->count++] = (struct place){.offset = offset, .rule = index};
	compact->odd += unwind_rule_equal(compact->rules[index], UNWIND_RULE_ODD);
	return 0;
}

/* Can a frame's address lie in the row, or is it needed to tell where no row is? */
static int is_needed(const struct compact *compact, const struct unwind_code *part,
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
	uint64_t first, last;
	int err;

	if (!compact->count)
		return error_set(-ENOENT, "no code is covered by .eh_frame");
	first = compact->places[0].offset / PAGE_BYTES;
	last = compact->places[compact->count - 1].offset / PAGE_BYTES;
	if (last - first >= UNWIND_PAGES_MAX || last > UINT32_MAX)
		return error_set(-E2BIG, "code is spread over more than 4 GiB of the file");
	sizes.first_page = (uint32_t)first;
	sizes.page_count = (uint32_t)(last - first) + 1;
	sizes.row_count = (uint32_t)compact->count + repeated_rows(compact);
	sizes.origin.odd = compact->odd;
	err = unwind_table_new(out, &sizes);
	if (err)
		return err;
	table_fill(*out, compact);
	memcpy(unwind_table_rules(*out), compact->rules,
	       compact->rule_count * sizeof(*compact->rules));
	return 0;
}

int unwind_compact(struct unwind_table **out, const struct cfi_rows *rows,
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
	if (!err)
		err = table_make(out, &compact, origin);
	free(compact.places);
	free(compact.buckets);
	free(compact.rules);
	return err;
}
