/* SPDX-License-Identifier: Apache-2.0 */
#include "heap_answers/line_holders.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "graph/owners.h"
#include "heap_answers/heap_view.h"
#include "tables/id_map.h"

struct summing {
	const struct heap_graph *heap;
	struct owners owners;
	struct id_map found; /* by line and holder, in `out` */
	uint32_t *holder;    /* by object; GRAPH_NONE: not known yet */
	/* what an object dominates has the numbers from its own on, retained->counts of them */
	uint32_t *number;
	struct line_holders *out;
};

/* Numbers the objects in the order of a walk down the tree of dominators. */
static int tree_number(struct summing *summing)
{
	const struct retained *retained = summing->heap->retained;
	uint32_t root = (uint32_t)retained->graph->count, next = 0;
	uint32_t *stack = malloc((retained->graph->count + 1) * sizeof(*stack));
	size_t depth = 0;

	if (!stack)
		return -ENOMEM;
	stack[depth++] = root;
	while (depth) {
		uint32_t at = stack[--depth];

		if (at != root)
			summing->number[at] = next++;
		for (uint32_t i = retained->child_start[at]; i < retained->child_start[at + 1]; i++)
			stack[depth++] = retained->children[i];
	}
	free(stack);
	return 0;
}

/* Whether nothing but the holder keeps the object alive. */
static int is_only(const struct summing *summing, uint32_t holder, uint32_t object)
{
	return summing->number[object] != GRAPH_NONE && summing->number[holder] != GRAPH_NONE &&
	       summing->number[object] - summing->number[holder] <
		       summing->heap->retained->counts[holder];
}

static int block_add(struct summing *summing, const struct block_line *block)
{
	uint32_t object = owners_find(&summing->owners, block->address, block->bytes), at;
	uint32_t holder = object == GRAPH_NONE
				  ? GRAPH_NONE
				  : path_holder(summing->heap->paths, summing->holder, object);
	uint64_t key = (uint64_t)block->line << 32 | holder;
	struct line_holders *out = summing->out;
	int err;

	at = id_map_find(&summing->found, key);
	if (at == ID_MAP_NONE) {
		at = (uint32_t)out->count;
		err = array_reserve(&out->entries, &out->capacity, out->count, 1,
				    sizeof(*out->entries))
			      ?: id_map_put(&summing->found, key, at);
		if (err)
			return err;
		out->entries[out->count++] =
			(struct line_holder){.line = block->line, .holder = holder};
	}
	out->entries[at].bytes += block->bytes;
	out->entries[at].count++;
	if (holder != GRAPH_NONE && is_only(summing, holder, object))
		out->entries[at].only_bytes += block->bytes;
	return 0;
}

static int holder_compare(const void *a, const void *b)
{
	const struct line_holder *x = a, *y = b;

	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->holder < y->holder ? -1 : x->holder > y->holder;
}

static int blocks_sum(struct summing *summing)
{
	const struct block_lines *lines = &summing->heap->lines;
	int err = owners_read(&summing->owners, summing->heap->graph) ?: tree_number(summing);

	for (size_t i = 0; i < lines->count && !err; i++)
		err = block_add(summing, &lines->blocks[i]);
	owners_free(&summing->owners);
	id_map_free(&summing->found);
	return err;
}

int line_holders_read(struct line_holders *out, const struct heap_graph *heap)
{
	struct line_holders holders = {0};
	struct summing summing = {.heap = heap, .out = &holders};
	int err = -ENOMEM;

	summing.holder = numbers_new(heap->graph->count);
	summing.number = numbers_new(heap->graph->count);
	if (summing.holder && summing.number)
		err = blocks_sum(&summing);
	free(summing.holder);
	free(summing.number);
	if (err) {
		line_holders_free(&holders);
		return err;
	}
	if (holders.count)
		qsort(holders.entries, holders.count, sizeof(*holders.entries), holder_compare);
	*out = holders;
	return 0;
}

void line_holders_free(struct line_holders *holders)
{
	free(holders->entries);
	*holders = (struct line_holders){0};
}

const struct line_holder *line_holders_of(const struct line_holders *holders, uint32_t line,
					  size_t *count)
{
	size_t low = 0, high = holders->count, end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (holders->entries[middle].line < line)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < holders->count && holders->entries[end].line == line; end++)
		;
	*count = end - low;
	return holders->entries + low;
}
