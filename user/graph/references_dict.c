/* SPDX-License-Identifier: Apache-2.0 */
/* Dictionaries, the attributes of instances, and types. */
#include <errno.h>

#include "graph/references.h"

#define MAX_LOG2     40u
#define MEMBER_BYTES 40u /* PyMemberDef */
#define INSTANCE_TAG 1u  /* of a managed dict's pointer in 3.12: it points to values */

int keys_read(const struct image *image, uint64_t address, struct keys *out)
{
	const struct object_offsets *at = &image->offsets.objects;
	const uint8_t *bytes = image_at(image, address, at->keys_indices);
	int err = bytes ? dict_keys_decode(at, address, bytes, out) : -EINVAL;

	if (err)
		return err;
	return image_at(image, out->entries, out->count * out->entry_bytes) ? 0 : -EINVAL;
}

/* The keys of a shared table belong to one of those that share it. */
static void keys_give(struct walk *walk, const struct keys *keys, int values)
{
	const uint8_t *entry =
		image_at(walk->references->image, keys->entries, keys->count * keys->entry_bytes);

	if (!entry || !walk_works(walk, keys->count))
		return;
	for (uint64_t i = 0; i < keys->count; i++, entry += keys->entry_bytes) {
		uint64_t value = word_at(entry + keys->value_at);

		if (values && !value)
			continue;
		walk_give(walk, word_at(entry + keys->key_at), REFERENCE_KEY, i);
		if (values)
			walk_give(walk, value, REFERENCE_VALUE, i);
	}
}

static void values_give(struct walk *walk, uint64_t values, uint64_t count,
			enum reference_kind kind)
{
	const uint8_t *bytes = image_at(walk->references->image, values, count * 8);

	if (!bytes || !walk_works(walk, count))
		return;
	for (uint64_t i = 0; i < count; i++)
		walk_give(walk, word_at(bytes + i * 8), kind, i);
}

void walk_dict(struct walk *walk)
{
	const struct image *image = walk->references->image;
	uint64_t values = image_u64(image, walk->object + walk->at->dict_values);
	struct keys keys;

	if (keys_read(image, image_u64(image, walk->object + walk->at->dict_keys), &keys))
		return;
	if (!values) {
		keys_give(walk, &keys, 1);
		return;
	}
	if (walk_claims(walk, keys.address, keys.bytes))
		keys_give(walk, &keys, 0);
	if (walk->at->values_first != ABI_NONE)
		values += walk->at->values_first;
	values_give(walk, values, keys.count, REFERENCE_VALUE);
}

/* Values that are not in a dict: inside of the object (3.13+), or at a pointer before it. */
static void values_of_instance(struct walk *walk, uint64_t values, uint64_t dict)
{
	const struct image *image = walk->references->image;
	struct keys keys;

	if (dict && image_u64(image, dict + walk->at->dict_values) == values)
		return;
	if (!keys_read(image, walk->type->keys, &keys))
		values_give(walk, values + walk->at->values_first, keys.count, REFERENCE_ATTRIBUTE);
}

static void managed_dict(struct walk *walk)
{
	const struct image *image = walk->references->image;
	/* Without the GIL no collector's head is between the object and the pointer. */
	uint32_t before = image->offsets.heap.gc_head_bytes + 8;
	uint64_t word = image_u64(image, walk->object - before), inside;
	uint32_t minor = image->offsets.version & 0xff;

	if (minor <= 11) {
		uint64_t values = image_u64(image, walk->object - 32);

		walk_give(walk, word, REFERENCE_DICT, 0);
		if (values)
			values_of_instance(walk, values, word);
		return;
	}
	if (minor == 12) {
		if (word & INSTANCE_TAG)
			values_of_instance(walk, word + 1, 0);
		else
			walk_give(walk, word, REFERENCE_DICT, 0);
		return;
	}
	walk_give(walk, word, REFERENCE_DICT, 0);
	inside = walk->object + walk->type->basic_bytes;
	/* PyDictValues: {capacity, size, embedded, valid} */
	if (walk->type->flags & TYPE_INLINE_VALUES && (image_u64(image, inside) >> 24 & 0xff) == 1)
		values_of_instance(walk, inside, word);
}

/* A dictionary whose place depends on the object's size: a subclass of int, bytes or tuple. */
static void distant_dict(struct walk *walk)
{
	const struct image *image = walk->references->image;
	uint64_t count = image_u64(image, walk->object + image->offsets.abi.bytes_size);
	uint64_t bytes;

	if (walk->type->flags & TYPE_INT && image->offsets.version >= 0x030c)
		count >>= 3; /* lv_tag */
	else if ((int64_t)count < 0)
		count = 0 - count;
	if (count >> MAX_LOG2)
		return;
	bytes = walk->type->basic_bytes + count * walk->type->item_bytes;
	bytes = (bytes + 7) / 8 * 8 + (uint64_t)walk->type->dict_at;
	walk_give(walk, image_u64(image, walk->object + bytes), REFERENCE_DICT, 0);
}

void walk_instance(struct walk *walk)
{
	if (walk->type->layout == LAYOUT_TYPE)
		return;
	if (walk->type->flags & TYPE_MANAGED_DICT && walk->at->values_first != ABI_NONE)
		managed_dict(walk);
	else if (walk->type->dict_at < 0 && walk->type->item_bytes)
		distant_dict(walk);
}

void walk_type(struct walk *walk)
{
	const struct image *image = walk->references->image;
	const struct object_offsets *at = walk->at;
	uint64_t flags = image_u64(image, walk->object + image->offsets.heap.type_flags);
	const uint32_t fields[] = {at->type_dict, at->type_bases,      at->type_mro,
				   at->type_base, at->type_subclasses, at->type_cache};
	const uint32_t heap_fields[] = {at->heaptype_name, at->heaptype_slots,
					at->heaptype_qualname, at->heaptype_module};
	struct keys keys;
	uint64_t table;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		walk_field(walk, fields[i]);
	if (!(flags & TYPE_HEAP)) {
		/* What a metatype adds is behind the room of a class, also where it is none. */
		walk_words(walk, at->heaptype_bytes, walk->type->basic_bytes, 1);
		return;
	}
	for (size_t i = 0; i < sizeof(heap_fields) / sizeof(heap_fields[0]); i++)
		walk_field(walk, heap_fields[i]);
	table = image_u64(image, walk->object + at->heaptype_keys);
	if (table && !keys_read(image, table, &keys) && walk_claims(walk, keys.address, keys.bytes))
		keys_give(walk, &keys, 0);
	walk_words(walk, at->heaptype_bytes, walk->type->basic_bytes, 1);
}
