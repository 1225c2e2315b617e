/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of an object: its block, and the tables that its layout tells. */
#include "graph/graph.h"

uint64_t graph_block_bytes(const struct graph *graph, uint64_t address)
{
	uint64_t bytes = address ? image_blocks_bytes(&graph->blocks, address) : 0;

	if (bytes || !address)
		return bytes;
	bytes = image_blocks_bytes(&graph->blocks, address - 16);
	return bytes && image_blocks_hooks(graph->image, address - 16, bytes) ? bytes : 0;
}

/* The block of values: in 3.11 and 3.12 they follow a prefix, whose last byte is its size. */
static uint64_t values_block(const struct graph *graph, uint64_t values)
{
	const uint8_t *prefix;

	if (!values || graph->image->offsets.version < 0x030b ||
	    graph->image->offsets.version > 0x030c)
		return values;
	prefix = image_at(graph->image, values - 1, 1);
	return prefix ? values - *prefix : 0;
}

/* The block of a list's items: without the GIL their number comes first. */
static uint64_t items_block(const struct graph *graph, uint64_t address)
{
	const struct python_offsets *offsets = &graph->image->offsets;
	uint64_t items = image_u64(graph->image, address + offsets->objects.list_items);

	return items && offsets->build == BUILD_FREE_THREADED ? items - 8 : items;
}

/* The table that counts with the object; 0: none. */
static uint64_t table_of(const struct graph *graph, uint64_t address, const struct type *type)
{
	const struct image *image = graph->image;
	const struct object_offsets *at = &image->offsets.objects;
	uint64_t table, values;

	switch (type->layout) {
	case LAYOUT_LIST:
		return items_block(graph, address);
	case LAYOUT_SET:
		table = image_u64(image, address + at->set_table);
		return table == address + at->set_small ? 0 : table;
	case LAYOUT_DICT:
		values = image_u64(image, address + at->dict_values);
		return values ? values_block(graph, values)
			      : image_u64(image, address + at->dict_keys);
	default:
		return 0;
	}
}

/* The block of values outside of the object: 3.11 has a pointer to them, 3.12 a tagged one. */
static uint64_t instance_values(const struct graph *graph, uint64_t address,
				const struct type *type)
{
	uint64_t word;

	if (!(type->flags & TYPE_MANAGED_DICT))
		return 0;
	if (graph->image->offsets.version == 0x030b)
		return values_block(graph, image_u64(graph->image, address - 32));
	word = image_u64(graph->image, address - 24);
	return graph->image->offsets.version == 0x030c && word & 1 ? values_block(graph, word + 1)
								   : 0;
}

int graph_tables_mark(struct graph *graph, uint64_t address, const struct type *type)
{
	const struct image *image = graph->image;
	const struct object_offsets *at = &image->offsets.objects;
	struct image_blocks *blocks = &graph->blocks;
	uint64_t values;

	switch (type->layout) {
	case LAYOUT_LIST:
		return image_blocks_table(blocks, items_block(graph, address));
	case LAYOUT_SET:
		return image_blocks_table(blocks, image_u64(image, address + at->set_table));
	case LAYOUT_DICT:
		values = image_u64(image, address + at->dict_values);
		return image_blocks_table(blocks, image_u64(image, address + at->dict_keys))
			       ?: image_blocks_table(blocks, values_block(graph, values));
	case LAYOUT_TYPE:
		return image_blocks_table(blocks, image_u64(image, address + at->heaptype_keys));
	default:
		return image_blocks_table(blocks, instance_values(graph, address, type));
	}
}

int graph_tables_each(const struct graph *graph, uint32_t object, table_fn visit, void *context)
{
	const struct type *type = graph_type(graph, object);
	uint64_t address = graph->addresses[object];
	const uint64_t tables[] = {
		table_of(graph, address, type), instance_values(graph, address, type),
		type->layout == LAYOUT_TYPE
			? image_u64(graph->image,
				    address + graph->image->offsets.objects.heaptype_keys)
			: 0};
	int err = 0;

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && !err; i++)
		err = tables[i] ? visit(context, tables[i]) : 0;
	return err;
}

uint64_t graph_own_bytes(const struct graph *graph, uint64_t address, const struct type *type)
{
	uint64_t bytes = graph_block_bytes(graph, address - types_head(&graph->types, type));

	/* Memory of another allocator, or a variable: what every instance has. */
	if (!bytes)
		bytes = (type->basic_bytes + 7) / 8 * 8;
	return bytes + graph_block_bytes(graph, table_of(graph, address, type)) +
	       graph_block_bytes(graph, instance_values(graph, address, type));
}
