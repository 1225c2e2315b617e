/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/holders/values.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define COMPACT    1u /* the bits above the kind in PyASCIIObject.state */
#define ASCII      2u
#define DIGIT_BITS 30u
#define TAG_SHIFT  3u /* of lv_tag, 3.12+ */

static int bytes_find(const struct graph *graph, uint64_t address, struct values_text *out)
{
	const struct abi_offsets *abi = &graph->image->offsets.abi;

	out->kind = 1;
	out->length = image_u64(graph->image, address + abi->bytes_size);
	if (out->length >> 47)
		return 0;
	out->data = image_at(graph->image, address + abi->bytes_data, out->length);
	return out->data != NULL;
}

int values_text(const struct graph *graph, uint64_t address, struct values_text *out)
{
	const struct abi_offsets *abi = &graph->image->offsets.abi;
	uint32_t object = graph_find(graph, address);
	uint64_t flags = object == GRAPH_NONE ? 0 : graph_type(graph, object)->flags, state, data;

	if (flags & TYPE_BYTES)
		return bytes_find(graph, address, out);
	if (!(flags & TYPE_STR))
		return 0;
	state = image_u64(graph->image, address + abi->unicode_state) >> abi->unicode_kind_shift;
	out->kind = state & 7;
	out->length = image_u64(graph->image, address + abi->unicode_length);
	if (!(state >> 3 & COMPACT) || (out->kind != 1 && out->kind != 2 && out->kind != 4) ||
	    out->length >> 45)
		return 0;
	data = address + (state >> 3 & ASCII ? abi->unicode_ascii : abi->unicode_compact);
	out->data = image_at(graph->image, data, out->length * out->kind);
	return out->data != NULL;
}

/* A str that is short enough to be told. */
static int text_find(const struct graph *graph, uint64_t address, struct values_text *out)
{
	uint32_t object = graph_find(graph, address);

	return object != GRAPH_NONE && graph_type(graph, object)->flags & TYPE_STR &&
	       values_text(graph, address, out) && out->length <= VALUES_TEXT;
}

static uint32_t character(const struct values_text *text, uint64_t i)
{
	uint32_t value = 0;

	memcpy(&value, text->data + i * text->kind, text->kind);
	return value;
}

static int text_repr(const struct values_text *text, struct buffer *out)
{
	int err = buffer_append(out, "'", 1);

	for (uint64_t i = 0; i < text->length && !err; i++) {
		uint32_t c = character(text, i);

		if (c == '\'' || c == '\\')
			err = buffer_printf(out, "\\%c", (int)c);
		else if (c >= ' ' && c < 127)
			err = buffer_printf(out, "%c", (int)c);
		else if (c < 256)
			err = buffer_printf(out, "\\x%02x", c);
		else if (c < 65536)
			err = buffer_printf(out, "\\u%04x", c);
		else
			err = buffer_printf(out, "\\U%08x", c);
	}
	return err ?: buffer_append(out, "'", 1) ?: 1;
}

/* Up to 3.11 ob_size has the sign; from 3.12 on lv_tag: 2 is negative, 1 zero. */
static int int_repr(const struct graph *graph, uint64_t address, struct buffer *out)
{
	const struct image *image = graph->image;
	uint64_t size = image_u64(image, address + image->offsets.abi.bytes_size), digits, value;
	const uint8_t *data = image_at(image, address + image->offsets.abi.bytes_size + 8, 8);
	int negative;

	if (image->offsets.version >= 0x030c) {
		negative = (size & 3) == 2;
		digits = size >> TAG_SHIFT;
	} else {
		negative = (int64_t)size < 0;
		digits = negative ? 0 - size : size;
	}
	if (!data || digits > 2)
		return 0;
	value = word_at(data);
	value = (digits ? value & 0x3fffffff : 0) |
		(digits == 2 ? (value >> 32 & 0x3fffffff) << DIGIT_BITS : 0);
	return buffer_printf(out, "%s%" PRIu64, negative ? "-" : "", value) ?: 1;
}

int values_repr(const struct graph *graph, uint64_t address, struct buffer *out)
{
	uint32_t object = graph_find(graph, address);
	struct values_text text;

	if (object == GRAPH_NONE)
		return 0;
	const struct type *type = graph_type(graph, object);
	/* A subclass may compare as it likes. */
	if (!strcmp(type->name, "NoneType"))
		return buffer_append(out, "None", 4) ?: 1;
	if (!strcmp(type->name, "str"))
		return !graph->texts_hidden && text_find(graph, address, &text)
			       ? text_repr(&text, out)
			       : 0;
	if (!strcmp(type->name, "int"))
		return int_repr(graph, address, out);
	return 0;
}

/* others: further characters than those of identifiers */
static int name_append(const struct graph *graph, uint64_t address, const char *others,
		       struct buffer *out)
{
	struct values_text text;

	if (!text_find(graph, address, &text) || !text.length || text.kind != 1)
		return 0;
	for (uint64_t i = 0; i < text.length; i++)
		if (!text.data[i] || text.data[i] >= 128 ||
		    !(text.data[i] == '_' || isalpha(text.data[i]) ||
		      (i && isdigit(text.data[i])) || strchr(others, text.data[i])))
			return 0;
	return buffer_append(out, text.data, text.length) ?: 1;
}

int values_identifier(const struct graph *graph, uint64_t address, struct buffer *out)
{
	return name_append(graph, address, "", out);
}

int values_qualname(const struct graph *graph, uint64_t address, struct buffer *out)
{
	return name_append(graph, address, ".<>", out);
}
