/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/waste/waste.h"

#include <stdlib.h>
#include <string.h>

#include "inspect/holders/values.h"
#include "util/array.h"
#include "util/sorted.h"

/* Texts with the same contents: str and bytes, not their subclasses, which may have attributes. */

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

static bool is_same(const struct searching *searching, const struct waste *entry, uint32_t type,
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

	err = err ?: id_map_put(&searching->found, hash, (uint32_t)out->count);
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

static int waste_duplicates(struct waste_list *out, const struct graph *graph)
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

/* Tables of dicts, lists and sets that are larger than their entries need. */

#define MIN_SLOTS   8u  /* of a dict's or set's table */
#define SET_ENTRY   16u /* {key, hash} */
#define MAX_ENTRIES (1ull << 40)

/* A dict's table of keys with so many slots: its indices, and two thirds as many entries. */
static uint64_t keys_bytes(const struct graph *graph, uint64_t slots, uint64_t entry_bytes)
{
	uint64_t width = slots <= 0xff ? 1 : slots <= 0xffff ? 2 : slots <= 0xffffffff ? 4 : 8;

	return graph->image->offsets.objects.keys_indices + slots * width +
	       slots * 2 / 3 * entry_bytes;
}

static uint64_t dict_spare(const struct graph *graph, uint64_t dict, uint64_t *entries)
{
	const struct image *image = graph->image;
	const struct object_offsets *at = &image->offsets.objects;
	uint64_t table = image_u64(image, dict + at->dict_keys), slots = MIN_SLOTS, bytes;
	struct keys keys;

	*entries = image_u64(image, dict + at->dict_used);
	/* Shared keys are the type's. An empty dict may have a table that is a variable. */
	if (image_u64(image, dict + at->dict_values) || !graph_block_bytes(graph, table) ||
	    keys_read(image, table, &keys) || *entries > keys.count)
		return 0;
	bytes = keys_bytes(graph, keys.slots, keys.entry_bytes);
	if (bytes > graph_block_bytes(graph, table))
		return 0;
	if (!*entries)
		return bytes;
	while (slots * 2 / 3 < *entries)
		slots *= 2;
	return slots < keys.slots ? bytes - keys_bytes(graph, slots, keys.entry_bytes) : 0;
}

static uint64_t list_spare(const struct graph *graph, uint64_t list, uint64_t *entries)
{
	const struct image *image = graph->image;
	const struct object_offsets *at = &image->offsets.objects;
	uint64_t capacity = image_u64(image, list + at->list_capacity);

	*entries = image_u64(image, list + image->offsets.abi.bytes_size);
	if (*entries > capacity || capacity > MAX_ENTRIES ||
	    capacity * 8 > graph_block_bytes(graph, image_u64(image, list + at->list_items)))
		return 0;
	return (capacity - *entries) * 8;
}

/* struct PySetObject: used is in front of mask. A small table is in the object. */
static uint64_t set_spare(const struct graph *graph, uint64_t set, uint64_t *entries)
{
	const struct image *image = graph->image;
	const struct object_offsets *at = &image->offsets.objects;
	uint64_t mask = image_u64(image, set + at->set_mask), slots = MIN_SLOTS;
	uint64_t table = image_u64(image, set + at->set_table);

	*entries = image_u64(image, set + at->set_mask - 8);
	if (table == set + at->set_small || mask > MAX_ENTRIES || *entries > mask ||
	    (mask + 1) * SET_ENTRY > graph_block_bytes(graph, table))
		return 0;
	/* A table that is three fifths full is replaced by a larger one. */
	while (*entries * 5 >= (slots - 1) * 3)
		slots *= 2;
	if (slots > mask)
		return 0;
	return (mask + 1 - (slots == MIN_SLOTS ? 0 : slots)) * SET_ENTRY;
}

uint64_t waste_spare(const struct graph *graph, uint32_t object, uint64_t *entries)
{
	uint64_t address = graph->addresses[object];

	*entries = 0;
	switch (graph_type(graph, object)->layout) {
	case LAYOUT_DICT:
		return dict_spare(graph, address, entries);
	case LAYOUT_LIST:
		return list_spare(graph, address, entries);
	case LAYOUT_SET:
		return set_spare(graph, address, entries);
	default:
		return 0;
	}
}

static int table_add(struct waste_list *out, struct id_map *found, uint64_t shape,
		     const struct waste *one)
{
	uint64_t key = hash_u64(shape ^ hash_u64((uint64_t)one->type << 8 | one->kind));
	uint32_t at = id_map_find(found, key);

	if (at == ID_MAP_NONE) {
		at = (uint32_t)out->count;
		int err = ARRAY_GROW(out->entries, out->capacity, out->count)
				  ?: id_map_put(found, key, at);
		if (err)
			return err;
		out->entries[out->count++] = *one;
		return 0;
	}
	struct waste *entry = &out->entries[at];
	entry->count++;
	entry->bytes += one->bytes;
	if (one->worst > entry->worst) {
		entry->worst = one->worst;
		entry->example = one->example;
	}
	return 0;
}

static int waste_tables(struct waste_list *out, const struct paths *paths)
{
	const struct graph *graph = paths->graph;
	struct id_map found = {0};
	int err = 0;

	for (size_t i = 0; i < graph->count && !err; i++) {
		uint64_t entries, bytes = waste_spare(graph, (uint32_t)i, &entries);
		const struct waste one = {.kind = entries ? WASTE_SPARE : WASTE_EMPTY,
					  .type = graph->type_of[i],
					  .example = (uint32_t)i,
					  .count = 1,
					  .bytes = bytes,
					  .worst = bytes};

		if (bytes)
			err = table_add(out, &found, paths->shape[i], &one);
	}
	id_map_free(&found);
	return err;
}

static const char *const names[WASTE_KINDS] = {
	[WASTE_DUPLICATE] = "duplicate",
	[WASTE_EMPTY] = "empty",
	[WASTE_SPARE] = "spare",
};

const char *waste_kind_name(enum waste_kind kind)
{
	return kind < WASTE_KINDS ? names[kind] : "";
}

static int waste_compare(const void *a, const void *b)
{
	const struct waste *x = a, *y = b;

	return CMP(y->bytes, x->bytes) ?: CMP(x->example, y->example);
}

int waste_find(struct waste_list *out, const struct paths *paths)
{
	*out = (struct waste_list){0};
	int err = waste_duplicates(out, paths->graph) ?: waste_tables(out, paths);
	if (!err && out->count)
		qsort(out->entries, out->count, sizeof(*out->entries), waste_compare);
	return err;
}

void waste_free(struct waste_list *list)
{
	free(list->entries);
	*list = (struct waste_list){0};
}
