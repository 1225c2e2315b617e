/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/graph/owners.h"

#include <stdlib.h>

#include "util/array.h"
#include "util/sorted.h"

#define DEBUG_HOOKS 16u /* bytes that they put in front of a request */

struct owning {
	struct owners *owners;
	uint32_t object;
};

static int owner_add(struct owners *owners, uint64_t address, uint32_t object)
{
	int err = ARRAY_GROW(owners->entries, owners->capacity, owners->count);

	if (!err)
		owners->entries[owners->count++] = (struct owner){address, object};
	return err;
}

static int table_visit(void *context, uint64_t address)
{
	const struct owning *owning = context;

	return owner_add(owning->owners, address, owning->object);
}

/* A buffer's claim is of malloc's block, with the debug hooks' bytes; a trace has the request. */
static uint64_t claim_address(const struct graph *graph, const struct claim *claim)
{
	return claim->address +
	       (image_blocks_hooks(graph->image, claim->address, claim->bytes) ? DEBUG_HOOKS : 0);
}

static int owner_compare(const void *a, const void *b)
{
	const struct owner *x = a, *y = b;

	return CMP(x->address, y->address) ?: CMP(x->object, y->object);
}

static int owners_fill(struct owners *owners, const struct graph *graph)
{
	struct owning owning = {.owners = owners};
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		owning.object = (uint32_t)i;
		err = owner_add(owners, graph->addresses[i], owning.object)
			      ?: graph_tables_each(graph, owning.object, table_visit, &owning);
	}
	for (size_t i = 0; i < graph->references.claim_count && !err; i++) {
		const struct claim *claim = &graph->references.claims[i];
		uint32_t object = graph_find(graph, claim->owner);

		if (object != GRAPH_NONE)
			err = owner_add(owners, claim_address(graph, claim), object);
	}
	return err;
}

int owners_read(struct owners *out, const struct graph *graph)
{
	struct owners owners = {0};
	int err = owners_fill(&owners, graph);

	if (err) {
		owners_free(&owners);
		return err;
	}
	if (owners.count)
		qsort(owners.entries, owners.count, sizeof(*owners.entries), owner_compare);
	*out = owners;
	return 0;
}

void owners_free(struct owners *owners)
{
	free(owners->entries);
	*owners = (struct owners){0};
}

uint32_t owners_find(const struct owners *owners, uint64_t address, uint64_t bytes)
{
	size_t at =
		address ? SORTED_ABOVE(owners->entries, owners->count, address, address - 1) : 0;

	if (at == owners->count || owners->entries[at].address - address >= bytes)
		return GRAPH_NONE;
	return owners->entries[at].object;
}
