/* SPDX-License-Identifier: Apache-2.0 */
/* Texts with the same contents: str and bytes, not their subclasses, which may have attributes. */
#include <string.h>

#include "inspect/dominators/values.h"
#include "inspect/waste/waste.h"
#include "util/array.h"

#define MAX_PROBES 8u /* different texts of the same hash; further ones count as single */

struct searching {
	const struct graph *graph;
	struct waste_list *out;
	struct id_map found; /* by hash of the contents, in `out` */
};

static uint64_t text_hash(const struct values_text *text, uint32_t type)
{
	uint64_t bytes = text->length * text->kind, hash = hash_u64(bytes ^ (uint64_t)type << 40);
	uint64_t at = 0, last = 0;

	for (; at + 8 <= bytes; at += 8)
		hash = hash_u64(hash ^ word_at(text->data + at));
	memcpy(&last, text->data + at, bytes - at);
	return hash_u64(hash ^ last) ^ text->kind;
}

static int is_same(const struct searching *searching, const struct waste *entry, uint32_t type,
		   const struct values_text *text)
{
	struct values_text other;

	return entry->type == type &&
	       values_text(searching->graph, searching->graph->addresses[entry->example], &other) &&
	       other.kind == text->kind && other.length == text->length &&
	       !memcmp(other.data, text->data, text->length * text->kind);
}

static int entry_new(struct searching *searching, uint64_t hash, const struct waste *entry)
{
	struct waste_list *out = searching->out;
	int err = ARRAY_GROW(out->entries, out->capacity, out->count);

	if (!err)
		err = id_map_put(&searching->found, hash, (uint32_t)out->count);
	if (!err)
		out->entries[out->count++] = *entry;
	return err;
}

static void entry_add(const struct graph *graph, struct waste *entry, uint32_t object)
{
	uint64_t bytes = graph_bytes(graph, object);

	entry->count++;
	entry->bytes += bytes;
	if (bytes <= entry->worst)
		return;
	entry->worst = bytes;
	entry->example = object;
}

static int text_add(struct searching *searching, uint32_t object, const struct values_text *text)
{
	const struct graph *graph = searching->graph;
	uint32_t type = graph->type_of[object];
	uint64_t hash = text_hash(text, type), bytes = graph_bytes(graph, object);
	const struct waste entry = {.kind = WASTE_DUPLICATE,
				    .type = type,
				    .example = object,
				    .count = 1,
				    .bytes = bytes,
				    .worst = bytes};

	for (unsigned int i = 0; i < MAX_PROBES; i++, hash = hash_u64(hash + 1)) {
		uint32_t at = id_map_find(&searching->found, hash);

		if (at == ID_MAP_NONE)
			return entry_new(searching, hash, &entry);
		if (is_same(searching, &searching->out->entries[at], type, text)) {
			entry_add(graph, &searching->out->entries[at], object);
			return 0;
		}
	}
	return 0;
}

int waste_duplicates(struct waste_list *out, const struct graph *graph)
{
	struct searching searching = {.graph = graph, .out = out};
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		const struct type *type = graph_type(graph, (uint32_t)i);
		struct values_text text;

		if (type->flags & (TYPE_STR | TYPE_BYTES) && !(type->flags & TYPE_HEAP) &&
		    values_text(graph, graph->addresses[i], &text))
			err = text_add(&searching, (uint32_t)i, &text);
	}
	for (size_t i = 0; i < out->count; i++) {
		out->entries[i].bytes -= out->entries[i].worst;
		if (out->entries[i].count > 1)
			out->entries[kept++] = out->entries[i];
	}
	out->count = kept;
	id_map_free(&searching.found);
	return err;
}
