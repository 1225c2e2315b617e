/* SPDX-License-Identifier: Apache-2.0 */
/* How references are named. */
#include <inttypes.h>
#include <string.h>

#include "inspect/holders/paths.h"
#include "inspect/holders/values.h"
#include "runtime/cpython/refcount.h"
#include "util/array.h"

#define LRU_CACHE_FUNCTION 72u /* behind the object's header */

static const char *type_name(const struct graph *graph, uint32_t object)
{
	return graph_type(graph, object)->name;
}

/* Fields whose offsets differ by version. NULL: it is none of them. */
static const char *field_name(const struct graph *graph, uint32_t source, uint64_t slot)
{
	const struct object_offsets *at = &graph->image->offsets.objects;
	const struct {
		uint32_t offset;
		const char *name;
	} of_type[] = {
		{at->type_dict, "__dict__"},
		{at->type_bases, "__bases__"},
		{at->type_mro, "__mro__"},
		{at->type_base, "__base__"},
	};
	const struct type *type = graph_type(graph, source);

	if (type->layout == LAYOUT_MODULE && slot == at->module_dict)
		return "__dict__";
	for (size_t i = 0; type->layout == LAYOUT_TYPE && i < ARRAY_SIZE(of_type); i++)
		if (slot == of_type[i].offset)
			return of_type[i].name;
	return NULL;
}

/* The key of entry number slot of a table of keys; 0: there is none. */
static uint64_t key_at(const struct graph *graph, uint64_t table, uint64_t slot)
{
	struct keys keys;

	if (keys_read(graph->image, table, &keys) || slot >= keys.count)
		return 0;
	return image_u64(graph->image, keys.entries + slot * keys.entry_bytes + keys.key_at);
}

uint64_t dict_key(const struct graph *graph, uint32_t dict, uint64_t slot)
{
	return key_at(graph,
		      image_u64(graph->image,
				graph->addresses[dict] + graph->image->offsets.objects.dict_keys),
		      slot);
}

/* co_localsplusnames, or co_varnames */
uint64_t variable_name(const struct graph *graph, uint64_t code, uint64_t slot)
{
	const struct object_offsets *at = &graph->image->offsets.objects;
	uint64_t names = image_u64(graph->image,
				   code + (at->code_slot_names == ABI_NONE ? at->code_variables
									   : at->code_slot_names));
	uint64_t count = image_u64(graph->image, names + graph->image->offsets.abi.bytes_size);

	return slot < count ? image_u64(graph->image, names + at->tuple_items + slot * 8) : 0;
}

uint64_t frame_code(const struct graph *graph, uint32_t source)
{
	const struct object_offsets *at = &graph->image->offsets.objects;
	uint64_t frame = graph->addresses[source], code;

	if (graph_type(graph, source)->layout == LAYOUT_GENERATOR)
		frame += at->generator_frame;
	else if (at->frame_inner != ABI_NONE)
		frame = image_u64(graph->image, frame + at->frame_inner);
	code = image_u64(graph->image, frame + graph->image->offsets.abi.frame_code);
	return graph->image->offsets.abi.frame_code_tagged ? code & ~7ull : code;
}

uint64_t cache_function_at(const struct graph *graph, uint32_t object)
{
	const struct python_offsets *offsets = &graph->image->offsets;
	uint64_t function =
		image_u64(graph->image,
			  graph->addresses[object] + refcount_header(offsets) + LRU_CACHE_FUNCTION);
	uint32_t found = graph_find(graph, function);

	return found != GRAPH_NONE && !strcmp(type_name(graph, found), "function") ? function : 0;
}

/* The name of the function that an lru_cache calls. */
static int cache_function(const struct graph *graph, uint32_t object, struct buffer *out)
{
	uint64_t function = cache_function_at(graph, object);

	return function ? values_qualname(
				  graph,
				  image_u64(graph->image,
					    function + graph->image->offsets.objects.function_name),
				  out)
			: 0;
}

int frame_function(const struct graph *graph, uint32_t object, struct buffer *out)
{
	enum types_layout layout = graph_type(graph, object)->layout;

	if (layout == LAYOUT_LRU_CACHE)
		return cache_function(graph, object, out);
	if (layout == LAYOUT_GENERATOR)
		return values_qualname(
			graph,
			image_u64(graph->image,
				  graph->addresses[object] +
					  graph->image->offsets.objects.generator_name),
			out);
	if (layout != LAYOUT_FRAME)
		return 0;
	return values_qualname(
		graph,
		image_u64(graph->image,
			  frame_code(graph, object) + graph->image->offsets.abi.code_qualname),
		out);
}

/* "cache of quote": what an lru_cache keeps is told with its function. */
static int field_write(const struct graph *graph, uint32_t source, const char *name,
		       struct buffer *out)
{
	int got = buffer_append(out, name, strlen(name));
	size_t before = out->size;

	if (got || graph_type(graph, source)->layout != LAYOUT_LRU_CACHE)
		return got;
	got = buffer_append(out, " of ", 4) ?: cache_function(graph, source, out);
	if (!got)
		out->size = before;
	return got < 0 ? got : 0;
}

static int word_name(const struct graph *graph, uint32_t source, uint64_t slot,
		     const char **kind_name, struct buffer *out)
{
	const struct type *type = graph_type(graph, source);
	const char *name = field_name(graph, source, slot);
	struct object_field field;
	char member[TYPES_NAME];

	*kind_name = "attribute";
	if (name)
		return buffer_append(out, name, strlen(name));
	if (types_member(&graph->types, type, slot, member))
		return buffer_append(out, member, strlen(member));
	if (types_field(&graph->types, type, slot, &field)) {
		*kind_name = field.is_attribute ? "attribute" : "field";
		return field_write(graph, source, field.name, out);
	}
	*kind_name = "word";
	return buffer_printf(out, "+%" PRIu64, slot);
}

static int repr_or_type(const struct graph *graph, uint64_t address, struct buffer *out)
{
	int got = values_repr(graph, address, out);

	if (got)
		return got < 0 ? got : 0;
	uint32_t object = graph_find(graph, address);
	if (object == GRAPH_NONE)
		return 0;
	return buffer_printf(out, "<%s at 0x%" PRIx64 ">", type_name(graph, object), address);
}

int reference_name(const struct graph *graph, uint32_t source, enum reference_kind kind,
		   uint64_t slot, const char **kind_name, struct buffer *out)
{
	static const char *const kinds[] = {
		[REFERENCE_TYPE] = "type",           [REFERENCE_WORD] = "word",
		[REFERENCE_BUFFER] = "buffer",       [REFERENCE_FIELD] = "word",
		[REFERENCE_ITEM] = "index",          [REFERENCE_KEY] = "dict key",
		[REFERENCE_VALUE] = "key",           [REFERENCE_ELEMENT] = "element",
		[REFERENCE_ATTRIBUTE] = "attribute", [REFERENCE_DICT] = "attribute",
		[REFERENCE_LOCAL] = "local",         [REFERENCE_STACK] = "stack",
		[REFERENCE_WEAK] = "weak",           [REFERENCE_MAYBE] = "stack",
		[REFERENCE_FRAME] = "field",         [REFERENCE_REFUTED] = "old word",
	};
	static const char *const parts[] = {
		[FRAME_CODE] = "code",
		[FRAME_FUNCTION] = "function",
		[FRAME_LOCALS] = "locals",
		[FRAME_OBJECT] = "frame",
	};
	uint64_t name;
	int err;

	*kind_name = kinds[kind];
	switch (kind) {
	case REFERENCE_TYPE:
		return buffer_append(out, "__class__", 9);
	case REFERENCE_WORD:
	case REFERENCE_FIELD:
		return word_name(graph, source, slot, kind_name, out);
	case REFERENCE_ITEM:
		return buffer_printf(out, "%" PRIu64, slot);
	case REFERENCE_KEY:
	case REFERENCE_VALUE:
		if (graph_type(graph, source)->layout != LAYOUT_DICT)
			return 0;
		return repr_or_type(graph, dict_key(graph, source, slot), out);
	case REFERENCE_ATTRIBUTE:
		name = key_at(graph, graph_type(graph, source)->keys, slot);
		err = values_identifier(graph, name, out);
		return err < 0 ? err : 0;
	case REFERENCE_FRAME:
		return buffer_printf(out, "%s", slot <= FRAME_OBJECT ? parts[slot] : "");
	case REFERENCE_DICT:
		return buffer_append(out, "__dict__", 8);
	case REFERENCE_LOCAL:
		name = variable_name(graph, frame_code(graph, source), slot);
		err = values_identifier(graph, name, out);
		return err < 0 ? err : 0;
	default:
		return 0;
	}
}
