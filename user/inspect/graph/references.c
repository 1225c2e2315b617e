/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/graph/references.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

/* --- references frame ------------------------------------------------------------------------- */

/* Frames and generators. */

#define MAX_SLOTS    65536u /* variables, or stack, of one frame */
#define TAG_MASK     7u     /* of a tagged reference, 3.14+ */
#define TAG_BORROWED 1u     /* it has no count of its own */

/* Takes steps off the work that is left; 0: there is none. */
static int walk_works(struct walk *walk, uint64_t steps)
{
	if (walk->references->work < steps) {
		walk->references->work = 0;
		return 0;
	}
	walk->references->work -= steps;
	return 1;
}

static int32_t i32_at(const struct image *image, uint64_t address)
{
	const uint8_t *at = image_at(image, address, 4);
	int32_t value = 0;

	if (at)
		memcpy(&value, at, sizeof(value));
	return value;
}

/* A reference of a frame, which from 3.14 on has a tag. */
static void give_tagged(struct walk *walk, uint64_t word, enum reference_kind kind, uint64_t slot)
{
	if (walk->references->image->offsets.abi.frame_code_tagged) {
		if (word & TAG_BORROWED)
			kind = REFERENCE_WEAK;
		word &= ~(uint64_t)TAG_MASK;
	}
	walk_give(walk, word, kind, slot);
}

static void give_slots(struct walk *walk, uint64_t from, uint64_t count, enum reference_kind kind)
{
	const uint8_t *bytes =
		count > MAX_SLOTS ? NULL : image_at(walk->references->image, from, count * 8);

	if (!bytes || !walk_works(walk, count))
		return;
	for (uint64_t i = 0; i < count; i++)
		give_tagged(walk, word_at(bytes + i * 8), kind, i);
}

/* The number of words from the frame's variables to the top of its stack; -1: not known. */
static int64_t frame_height(const struct walk *walk, uint64_t frame)
{
	const struct image *image = walk->references->image;

	if (image->offsets.version < 0x030e)
		return i32_at(image, frame + walk->at->inner_stack_top);
	uint64_t top = image_u64(image, frame + walk->at->inner_stack_top);
	if (top < frame + walk->at->inner_slots)
		return -1;
	return (int64_t)((top - frame - walk->at->inner_slots) / 8);
}

static void inner_frame(struct walk *walk, uint64_t frame, int cleared)
{
	const struct image *image = walk->references->image;
	const struct object_offsets *at = walk->at;
	uint64_t code = image_u64(image, frame + image->offsets.abi.frame_code);
	int64_t height = frame_height(walk, frame);

	if (!cleared || image->offsets.version >= 0x030c)
		give_tagged(walk, code, REFERENCE_FRAME, FRAME_CODE);
	if (cleared)
		return;
	give_tagged(walk, image_u64(image, frame + at->inner_function), REFERENCE_FRAME,
		    FRAME_FUNCTION);
	walk_give(walk, image_u64(image, frame + at->inner_locals), REFERENCE_FRAME, FRAME_LOCALS);
	walk_give(walk, image_u64(image, frame + at->inner_object), REFERENCE_FRAME, FRAME_OBJECT);
	if (image->offsets.abi.frame_code_tagged)
		code &= ~(uint64_t)TAG_MASK;
	uint64_t slots = (uint32_t)i32_at(image, code + at->code_slots);
	uint64_t stack = (uint32_t)i32_at(image, code + at->code_stack);
	if (slots > MAX_SLOTS || stack > MAX_SLOTS)
		return;
	give_slots(walk, frame + at->inner_slots, slots, REFERENCE_LOCAL);
	if (height >= (int64_t)slots)
		give_slots(walk, frame + at->inner_slots + slots * 8, (uint64_t)height - slots,
			   REFERENCE_STACK);
	else
		give_slots(walk, frame + at->inner_slots + slots * 8, stack, REFERENCE_MAYBE);
}

static void walk_field(struct walk *walk, uint32_t offset);

/* Up to 3.10 a frame is an object with its variables and stack in it. */
static void old_frame(struct walk *walk)
{
	const struct image *image = walk->references->image;
	const struct object_offsets *at = walk->at;
	uint64_t stack = image_u64(image, walk->object + at->frame_stack_base);
	uint64_t slots = walk->object + at->frame_locals, height, top;

	/* f_gen is borrowed; numbers follow, and the blocks, which are not initialised. */
	for (uint32_t offset = walk_header(walk) + 8; offset < at->frame_generator; offset += 8)
		if (offset != at->frame_stack_base && offset != at->frame_stack_top)
			walk_field(walk, offset);
	if (stack < slots || (stack - slots) / 8 > MAX_SLOTS)
		return;
	give_slots(walk, slots, (stack - slots) / 8, REFERENCE_LOCAL);
	top = image_u64(image, walk->object + at->frame_stack_top);
	if (image->offsets.version == 0x030a)
		height = (uint64_t)i32_at(image, walk->object + at->frame_stack_top);
	else
		height = top >= stack ? (top - stack) / 8 : UINT64_MAX;
	if (height <= MAX_SLOTS) {
		give_slots(walk, stack, height, REFERENCE_STACK);
	} else {
		uint64_t code = image_u64(image, walk->object + image->offsets.abi.frame_code);

		give_slots(walk, stack, (uint32_t)i32_at(image, code + at->code_stack),
			   REFERENCE_MAYBE);
	}
}

static void walk_frame(struct walk *walk)
{
	const struct object_offsets *at = walk->at;

	if (at->frame_inner == ABI_NONE) {
		old_frame(walk);
		return;
	}
	for (uint32_t offset = walk_header(walk); offset < at->frame_locals; offset += 8)
		if (offset != at->frame_inner)
			walk_field(walk, offset);
	uint64_t inner = image_u64(walk->references->image, walk->object + at->frame_inner);
	/* Otherwise the thread or the generator that runs it has the frame. */
	if (inner == walk->object + at->frame_locals)
		inner_frame(walk, inner, 0);
}

static void walk_words(struct walk *walk, uint64_t from, uint64_t end, int buffers);

static void walk_generator(struct walk *walk)
{
	const struct image *image = walk->references->image;
	const struct object_offsets *at = walk->at;

	if (at->generator_frame == ABI_NONE) {
		walk_words(walk, walk_header(walk), walk->type->basic_bytes, 0);
		return;
	}
	walk_words(walk, walk_header(walk), at->generator_frame, 0);
	const uint8_t *state = image_at(image, walk->object + at->generator_state, 1);
	if (state)
		inner_frame(walk, walk->object + at->generator_frame,
			    *state == at->generator_cleared);
}

void references_inner_frame(struct references *references, uint64_t address, uint64_t own,
			    reference_fn visit, void *context)
{
	struct walk walk = {.references = references,
			    .at = &references->image->offsets.objects,
			    .object = own,
			    .visit = visit,
			    .context = context};

	inner_frame(&walk, address, 0);
}

/* --- references dict -------------------------------------------------------------------------- */

/* Dictionaries, the attributes of instances, and types. */

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

static int walk_claims(struct walk *walk, uint64_t address, uint64_t bytes);

static void walk_dict(struct walk *walk)
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

	if (walk->type->flags & TYPE_INT && image->offsets.version >= 0x030c)
		count >>= 3; /* lv_tag */
	else if ((int64_t)count < 0)
		count = 0 - count;
	if (count >> MAX_LOG2)
		return;
	uint64_t bytes = walk->type->basic_bytes + count * walk->type->item_bytes;
	bytes = (bytes + 7) / 8 * 8 + (uint64_t)walk->type->dict_at;
	walk_give(walk, image_u64(image, walk->object + bytes), REFERENCE_DICT, 0);
}

static void walk_instance(struct walk *walk)
{
	if (walk->type->layout == LAYOUT_TYPE)
		return;
	if (walk->type->flags & TYPE_MANAGED_DICT && walk->at->values_first != ABI_NONE)
		managed_dict(walk);
	else if (walk->type->dict_at < 0 && walk->type->item_bytes)
		distant_dict(walk);
}

static void walk_type(struct walk *walk)
{
	const struct image *image = walk->references->image;
	const struct object_offsets *at = walk->at;
	uint64_t flags = image_u64(image, walk->object + image->offsets.heap.type_flags);
	const uint32_t fields[] = {at->type_dict, at->type_bases,      at->type_mro,
				   at->type_base, at->type_subclasses, at->type_cache};
	const uint32_t heap_fields[] = {at->heaptype_name, at->heaptype_slots,
					at->heaptype_qualname, at->heaptype_module};
	struct keys keys;

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		walk_field(walk, fields[i]);
	if (!(flags & TYPE_HEAP)) {
		/* What a metatype adds is behind the room of a class, also where it is none. */
		walk_words(walk, at->heaptype_bytes, walk->type->basic_bytes, 1);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(heap_fields); i++)
		walk_field(walk, heap_fields[i]);
	uint64_t table = image_u64(image, walk->object + at->heaptype_keys);
	if (table && !keys_read(image, table, &keys) && walk_claims(walk, keys.address, keys.bytes))
		keys_give(walk, &keys, 0);
	walk_words(walk, at->heaptype_bytes, walk->type->basic_bytes, 1);
}

/* --- references ------------------------------------------------------------------------------- */

#define MAX_BUFFERS  (1u << 20) /* of one object */
#define MAX_STACK    (1u << 24) /* bytes of a greenlet's */
#define STACK_HEADER 24u
#define MAX_LEVELS   3u  /* of buffers that lead to buffers */
#define DEQUE_BLOCK  64u /* items of a block of collections.deque */
/* behind the object's header */
#define CYTHON_SELF  8u  /* PyCFunctionObject's m_self */
#define DECIMAL_DATA 48u /* the address of its digits */
#define LRU_PREVIOUS 0u  /* of functools' links; the next one is owned */
#define LRU_NEXT     8u

/* A word of the object whose layout is known. */
static void walk_field(struct walk *walk, uint32_t offset)
{
	if (offset != ABI_NONE)
		walk_give(walk, image_u64(walk->references->image, walk->object + offset),
			  REFERENCE_FIELD, offset);
}

/* Whether the table or buffer counts with this object, and was not read yet in this walk. */
static int walk_claims(struct walk *walk, uint64_t address, uint64_t bytes)
{
	struct references *references = walk->references;
	uint32_t found = id_map_find(&references->claim_of, address);

	if (found != ID_MAP_NONE) {
		struct claim *claim = &references->claims[found];

		if (claim->owner != walk->object || claim->walk == references->walks)
			return 0;
		claim->walk = references->walks;
		return 1;
	}
	if (!references->discovers)
		return 0;
	int err =
		ARRAY_GROW(references->claims, references->claim_capacity, references->claim_count)
			?: id_map_put(&references->claim_of, address,
				      (uint32_t)references->claim_count);
	if (err) {
		references->err = err;
		return 0;
	}
	references->claims[references->claim_count++] =
		(struct claim){address, bytes, walk->object, references->walks};
	return 1;
}

/* The buffers of one object. */
struct references_pending {
	uint64_t *addresses;
	size_t count, capacity;
};

static void buffer_note(struct walk *walk, struct references_pending *pending, uint64_t address)
{
	struct references *references = walk->references;
	uint64_t bytes = image_blocks_bytes(references->blocks, address);
	uint64_t block = address;

	if (!bytes && (bytes = image_blocks_bytes(references->blocks, address - 16)) != 0) {
		block = address - 16;
		if (!image_blocks_hooks(references->image, block, bytes))
			return;
	}
	if (!bytes || image_blocks_is_table(references->blocks, block) ||
	    pending->count == MAX_BUFFERS || references->is_object(references->context, address))
		return;
	if (!walk_claims(walk, block, bytes))
		return;
	references->err = ARRAY_GROW(pending->addresses, pending->capacity, pending->count);
	if (references->err)
		return;
	pending->addresses[pending->count++] = block;
}

/* The list of an lru_cache ends at the cache itself. */
static bool is_lru_cache(const struct walk *walk, uint64_t address)
{
	const struct image *image = walk->references->image;
	uint32_t type = types_find(walk->references->types,
				   image_u64(image, address + image->offsets.abi.object_type));

	return type != TYPES_NONE &&
	       walk->references->types->entries[type].layout == LAYOUT_LRU_CACHE;
}

static bool is_borrowed(const struct walk *walk, uint64_t offset, uint64_t word)
{
	if (walk->type->weaklist_at && offset == walk->type->weaklist_at)
		return 1;
	switch (walk->type->layout) {
	case LAYOUT_LRU_LINK:
	case LAYOUT_LRU_CACHE:
		offset -= walk_header(walk);
		return offset == LRU_PREVIOUS || (offset == LRU_NEXT && is_lru_cache(walk, word));
	case LAYOUT_MODULE:
		return offset == walk->at->module_def;
	case LAYOUT_CODE:
		return offset == walk->at->code_weaklist;
	case LAYOUT_VIEW:
		return offset == walk->at->view_object;
	case LAYOUT_CYTHON:
		return offset - walk_header(walk) == CYTHON_SELF && word == walk->object;
	default:
		return 0;
	}
}

/*
 * A suspended greenlet has a stack of frames of its own from 3.11 on, in a _PyStackChunk, which is
 * a mapping: {previous, size, top, words}. How much of it is in use is in the frames.
 */
static void frames_read(struct walk *walk, uint64_t chunk)
{
	struct references *references = walk->references;
	uint64_t size = image_u64(references->image, chunk + 8);

	if (chunk & 4095 || size < 4096 || size & 4095 || size > MAX_STACK)
		return;
	const uint8_t *bytes = image_at(references->image, chunk, size);
	if (!bytes || !walk_works(walk, size / 8))
		return;
	for (uint64_t at = STACK_HEADER; at < size; at += 8) {
		uint64_t word = word_at(bytes + at);

		if (word >= 4096 && !(word >> 47) &&
		    references->is_object(references->context, word & ~7ull))
			walk_give(walk, word & ~7ull, REFERENCE_MAYBE, at);
	}
}

static void words_read(struct walk *walk, uint64_t base, uint64_t from, uint64_t end,
		       struct references_pending *pending)
{
	struct references *references = walk->references;
	const uint8_t *bytes = image_at(references->image, base + from, end - from);
	enum reference_kind kind = base                                    ? REFERENCE_WORD
				   : walk->type->layout == LAYOUT_GREENLET ? REFERENCE_MAYBE
									   : REFERENCE_BUFFER;

	if (!bytes || !walk_works(walk, (end - from) / 8))
		return;
	for (uint64_t at = from; at + 8 <= end; at += 8) {
		uint64_t word = word_at(bytes + (at - from));

		if (word < 4096 || word & 7 || word >> 47 || (base && is_borrowed(walk, at, word)))
			continue;
		if (base && walk->type->dict_at > 0 && at == (uint64_t)walk->type->dict_at)
			walk_give(walk, word, REFERENCE_DICT, 0);
		else if (references->is_object(references->context, word))
			walk_give(walk, word, kind, at);
		else if (kind == REFERENCE_MAYBE && !(word & 4095) &&
			 !image_blocks_bytes(references->blocks, word))
			frames_read(walk, word);
		else if (pending)
			buffer_note(walk, pending, word);
	}
}

/*
 * Reads the buffers level by level. In memory that is not initialised, or that others share, words
 * lead anywhere: only the nodes of an OrderedDict, which are a list, are followed to the end.
 */
static void buffers_read(struct walk *walk, struct references_pending *pending)
{
	unsigned int most = walk->type->layout == LAYOUT_DICT ? MAX_BUFFERS : MAX_LEVELS;
	size_t next = 0;

	for (unsigned int level = 0; level < most && next < pending->count; level++)
		for (size_t end = pending->count; next < end; next++) {
			uint64_t block = pending->addresses[next];
			uint64_t bytes = image_blocks_bytes(walk->references->blocks, block);

			if (walk->type->layout != LAYOUT_OPAQUE)
				words_read(walk, 0, block, block + bytes / 8 * 8,
					   level + 1 < most ? pending : NULL);
		}
}

/* The words from offset to end of the object, and, if wanted, of the buffers that they lead to. */
static void walk_words(struct walk *walk, uint64_t from, uint64_t end, int buffers)
{
	struct references_pending pending = {0};

	if (from >= end)
		return;
	words_read(walk, walk->object, from, end, buffers ? &pending : NULL);
	if (buffers)
		buffers_read(walk, &pending);
	free(pending.addresses);
}

static void walk_items(struct walk *walk, uint64_t items, uint64_t count)
{
	const uint8_t *bytes =
		count >> 40 ? NULL : image_at(walk->references->image, items, count * 8);

	if (!bytes || !walk_works(walk, count))
		return;
	for (uint64_t i = 0; i < count; i++)
		walk_give(walk, word_at(bytes + i * 8), REFERENCE_ITEM, i);
}

static void walk_list(struct walk *walk)
{
	const struct image *image = walk->references->image;
	uint64_t count = image_u64(image, walk->object + image->offsets.abi.bytes_size);

	if (count <= image_u64(image, walk->object + walk->at->list_capacity))
		walk_items(walk, image_u64(image, walk->object + walk->at->list_items), count);
}

static void walk_set(struct walk *walk)
{
	const struct image *image = walk->references->image;
	uint64_t mask = image_u64(image, walk->object + walk->at->set_mask);
	uint64_t table = image_u64(image, walk->object + walk->at->set_table);
	const uint8_t *bytes = mask >> 40 ? NULL : image_at(image, table, (mask + 1) * 16);

	if (!bytes || !walk_works(walk, mask + 1))
		return;
	for (uint64_t i = 0; i <= mask; i++)
		walk_give(walk, word_at(bytes + i * 16), REFERENCE_ELEMENT, i);
}

/*
 * struct dequeobject (Modules/_collectionsmodule.c): ob_size, the leftmost and the rightmost block,
 * the first index in one and the last in the other; a block is {left, 64 items, right}. 0; -EINVAL:
 * this one's blocks do not hold ob_size items, so it is another structure.
 */
static int walk_deque(struct walk *walk, int gives)
{
	const struct image *image = walk->references->image;
	const uint8_t *deque = image_at(image, walk->object + walk_header(walk), 40);
	uint64_t size, block, right, index, last, seen = 0;

	if (!deque)
		return -EINVAL;
	size = word_at(deque);
	block = word_at(deque + 8);
	right = word_at(deque + 16);
	index = word_at(deque + 24);
	last = word_at(deque + 32);
	while (seen < size && index < DEQUE_BLOCK) {
		const uint8_t *bytes = image_at(image, block, (DEQUE_BLOCK + 2) * 8);
		uint64_t end = block == right ? last + 1 : DEQUE_BLOCK;

		if (!bytes || end > DEQUE_BLOCK || !walk_works(walk, DEQUE_BLOCK))
			return -EINVAL;
		if (gives)
			walk_claims(walk, block,
				    image_blocks_bytes(walk->references->blocks, block));
		for (; index < end && seen < size; index++, seen++)
			if (gives)
				walk_give(walk, word_at(bytes + 8 + index * 8), REFERENCE_ITEM,
					  seen);
		if (block == right)
			break;
		block = word_at(bytes + (DEQUE_BLOCK + 1) * 8);
		index = 0;
	}
	return seen == size ? 0 : -EINVAL;
}

/* PyDecObject (Modules/_decimal/_decimal.c): digits that need no buffer are in the object. */
static void walk_decimal(struct walk *walk)
{
	struct references *references = walk->references;
	uint64_t data =
		image_u64(references->image, walk->object + walk_header(walk) + DECIMAL_DATA);
	uint64_t bytes = image_blocks_bytes(references->blocks, data);

	if (data - walk->object < walk->type->layout_bytes)
		return;
	if (!bytes && (bytes = image_blocks_bytes(references->blocks, data - 16)) != 0 &&
	    image_blocks_hooks(references->image, data - 16, bytes))
		data -= 16;
	if (bytes)
		walk_claims(walk, data, bytes);
}

static void walk_code(struct walk *walk)
{
	const struct image *image = walk->references->image;
	uint32_t end = image->offsets.abi.code_bytecode;

	walk_words(walk, walk_header(walk), end == ABI_NONE ? walk->type->basic_bytes : end, 0);
	if (walk->at->code_cached == ABI_NONE)
		return;
	/* _PyCoCached: {_co_code, _co_varnames, _co_cellvars, _co_freevars} */
	uint64_t cached = image_u64(image, walk->object + walk->at->code_cached);
	for (unsigned int i = 0; cached && i < 4; i++)
		walk_give(walk, image_u64(image, cached + i * 8), REFERENCE_FIELD,
			  walk->at->code_cached);
}

/* The part of the object that its layout describes. 1: the rest is not to be read. */
static int walk_layout(struct walk *walk)
{
	const struct image *image = walk->references->image;

	switch (walk->type->layout) {
	case LAYOUT_DICT:
		walk_dict(walk);
		return 0;
	case LAYOUT_LIST:
		walk_list(walk);
		return 0;
	case LAYOUT_TUPLE:
		walk_items(walk, walk->object + walk->at->tuple_items,
			   image_u64(image, walk->object + image->offsets.abi.bytes_size));
		return 1;
	case LAYOUT_SET:
		walk_set(walk);
		return 0;
	case LAYOUT_TYPE:
		walk_type(walk);
		return 1;
	case LAYOUT_WEAKREF:
		walk_field(walk, walk->at->weakref_callback);
		walk_give(walk, image_u64(image, walk->object + walk->at->weakref_object),
			  REFERENCE_WEAK, walk->at->weakref_object);
		return 0;
	case LAYOUT_CODE:
		walk_code(walk);
		return 1;
	case LAYOUT_FRAME:
		walk_frame(walk);
		return 1;
	case LAYOUT_GENERATOR:
		walk_generator(walk);
		return 1;
	case LAYOUT_DECIMAL:
		walk_decimal(walk);
		return 0;
	default:
		return 0;
	}
}

static uint64_t words_start(struct walk *walk)
{
	switch (walk->type->layout) {
	case LAYOUT_WORDS:
	case LAYOUT_MODULE:
	case LAYOUT_VIEW:
	case LAYOUT_OPAQUE:
	case LAYOUT_LRU_CACHE:
	case LAYOUT_LRU_LINK:
	case LAYOUT_CYTHON:
	case LAYOUT_GREENLET:
		return walk_header(walk);
	case LAYOUT_DEQUE:
		if (walk_deque(walk, 0))
			return walk_header(walk);
		walk_deque(walk, 1);
		return walk->type->layout_bytes;
	default:
		return walk->type->layout_bytes;
	}
}

/* The items of an object of varying size are words, too, unless a layout says what they are. */
static uint64_t words_end(struct walk *walk)
{
	const struct image *image = walk->references->image;
	uint64_t count = image_u64(image, walk->object + image->offsets.abi.bytes_size);
	uint64_t head = types_head(walk->references->types, walk->type);
	uint64_t bytes;

	/* The items of a subclass of int or bytes are where another type has members. */
	if (walk->type->item_bytes && walk->type->layout == LAYOUT_PLAIN)
		return 0;
	if (!walk->type->item_bytes || walk->type->item_bytes % 8 ||
	    walk->type->layout != LAYOUT_WORDS)
		return walk->type->basic_bytes;
	count = (int64_t)count < 0 ? 0 - count : count;
	bytes = image_blocks_bytes(walk->references->blocks, walk->object - head);
	bytes = bytes > head ? bytes - head : 0;
	if (count > bytes / walk->type->item_bytes)
		return walk->type->basic_bytes;
	return walk->type->basic_bytes + count * walk->type->item_bytes;
}

void references_each(struct references *references, uint64_t address, const struct type *type,
		     reference_fn visit, void *context)
{
	struct walk walk = {.references = references,
			    .at = &references->image->offsets.objects,
			    .object = address,
			    .type = type,
			    .visit = visit,
			    .context = context};

	if (!walk_works(&walk, 1))
		return;
	references->walks++;
	if (type->flags & TYPE_HEAP)
		walk_give(&walk, type->address, REFERENCE_TYPE, 0);
	if (!walk_layout(&walk))
		walk_words(&walk, words_start(&walk), words_end(&walk), 1);
	walk_instance(&walk);
}

void references_free(struct references *references)
{
	free(references->claims);
	id_map_free(&references->claim_of);
	memset(references, 0, sizeof(*references));
}
