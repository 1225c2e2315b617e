/* SPDX-License-Identifier: Apache-2.0 */
/* Tarjan's algorithm, without recursion. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/waste/cycles.h"

#define NOT_SEEN UINT32_MAX

struct components_search {
	const uint32_t *start, *out;
	uint32_t *part;
	uint32_t parts, seen;
	uint32_t *number; /* in the order of the search */
	uint32_t *low;    /* the least number that is known to be in the same component */
	uint32_t *next;   /* the edge to follow next */
	uint32_t *open;   /* nodes whose component is not complete */
	uint32_t *way;    /* from where the search began to the current node */
	size_t open_count, way_count;
};

static void enter(struct components_search *search, uint32_t node)
{
	search->number[node] = search->low[node] = search->seen++;
	search->next[node] = search->start[node];
	search->open[search->open_count++] = node;
	search->way[search->way_count++] = node;
}

static void lower(struct components_search *search, uint32_t node, uint32_t low)
{
	if (low < search->low[node])
		search->low[node] = low;
}

static void leave(struct components_search *search, uint32_t node)
{
	uint32_t member;

	search->way_count--;
	if (search->way_count)
		lower(search, search->way[search->way_count - 1], search->low[node]);
	if (search->low[node] != search->number[node])
		return;
	do {
		member = search->open[--search->open_count];
		search->part[member] = search->parts;
	} while (member != node);
	search->parts++;
}

static void search_from(struct components_search *search, uint32_t node)
{
	enter(search, node);
	while (search->way_count) {
		uint32_t at = search->way[search->way_count - 1], to;

		if (search->next[at] == search->start[at + 1]) {
			leave(search, at);
			continue;
		}
		to = search->out[search->next[at]++];
		if (search->number[to] == NOT_SEEN)
			enter(search, to);
		else if (search->part[to] == NOT_SEEN)
			lower(search, at, search->number[to]);
	}
}

int components_find(const uint32_t *start, const uint32_t *out, uint32_t count, uint32_t *part,
		    uint32_t *parts)
{
	struct components_search search = {.start = start, .out = out, .part = part};
	uint32_t *memory = malloc(((size_t)count + 1) * 5 * sizeof(*memory));

	if (!memory)
		return -ENOMEM;
	search.number = memory;
	search.low = memory + count;
	search.next = search.low + count;
	search.open = search.next + count;
	search.way = search.open + count;
	memset(search.number, 0xff, count * sizeof(*memory));
	memset(part, 0xff, count * sizeof(*part));
	for (uint32_t i = 0; i < count; i++)
		if (search.number[i] == NOT_SEEN)
			search_from(&search, i);
	free(memory);
	*parts = search.parts;
	return 0;
}
