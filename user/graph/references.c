/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/references.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

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

int walk_works(struct walk *walk, uint64_t steps)
{
	if (walk->references->work < steps) {
		walk->references->work = 0;
		return 0;
	}
	walk->references->work -= steps;
	return 1;
}

void walk_field(struct walk *walk, uint32_t offset)
{
	if (offset != ABI_NONE)
		walk_give(walk, image_u64(walk->references->image, walk->object + offset),
			  REFERENCE_FIELD, offset);
}

int walk_claims(struct walk *walk, uint64_t address, uint64_t bytes)
{
	struct references *references = walk->references;
	uint32_t found = id_map_find(&references->claim_of, address);
	int err;

	if (found != ID_MAP_NONE) {
		struct claim *claim = &references->claims[found];

		if (claim->owner != walk->object || claim->walk == references->walks)
			return 0;
		claim->walk = references->walks;
		return 1;
	}
	if (!references->discovers)
		return 0;
	err = array_reserve(&references->claims, &references->claim_capacity,
			    references->claim_count, 1, sizeof(struct claim));
	if (!err)
		err = id_map_put(&references->claim_of, address, (uint32_t)references->claim_count);
	if (err) {
		references->err = err;
		return 0;
	}
	references->claims[references->claim_count++] =
		(struct claim){address, bytes, walk->object, references->walks};
	return 1;
}

/* The buffers of one object. */
struct pending {
	uint64_t *addresses;
	size_t count, capacity;
};

static void buffer_note(struct walk *walk, struct pending *pending, uint64_t address)
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
	references->err = array_reserve(&pending->addresses, &pending->capacity, pending->count, 1,
					sizeof(uint64_t));
	if (references->err)
		return;
	pending->addresses[pending->count++] = block;
}

/* The list of an lru_cache ends at the cache itself. */
static int is_lru_cache(const struct walk *walk, uint64_t address)
{
	const struct image *image = walk->references->image;
	uint32_t type = types_find(walk->references->types,
				   image_u64(image, address + image->offsets.abi.object_type));

	return type != TYPES_NONE &&
	       walk->references->types->entries[type].layout == LAYOUT_LRU_CACHE;
}

static int is_borrowed(const struct walk *walk, uint64_t offset, uint64_t word)
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
	const uint8_t *bytes;

	if (chunk & 4095 || size < 4096 || size & 4095 || size > MAX_STACK)
		return;
	bytes = image_at(references->image, chunk, size);
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
		       struct pending *pending)
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
static void buffers_read(struct walk *walk, struct pending *pending)
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

void walk_words(struct walk *walk, uint64_t from, uint64_t end, int buffers)
{
	struct pending pending = {0};

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
	uint64_t cached;

	walk_words(walk, walk_header(walk), end == ABI_NONE ? walk->type->basic_bytes : end, 0);
	if (walk->at->code_cached == ABI_NONE)
		return;
	/* _PyCoCached: {_co_code, _co_varnames, _co_cellvars, _co_freevars} */
	cached = image_u64(image, walk->object + walk->at->code_cached);
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
