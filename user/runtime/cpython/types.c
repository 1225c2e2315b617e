/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyType_Type is the only variable that is its own type and has the size of a class. Each variable
 * of that type, or of a type of it, whose name lies in front of the file's variables, is a static
 * type. What names them is sought in all memory: words that are the address of one.
 */
#include "runtime/cpython/types.h"

#include <errno.h>
#include <stdlib.h>

#include "util/array.h"
#include "util/sorted.h"
#include "util/word.h"

#define WORD      8u
#define PAGE      4096u
#define PIECE     (1u << 20) /* bytes read at once */
#define MAX_TYPES 4096u
#define CACHE     4096u /* texts; a power of two */
#define TEXT      64u   /* of a name, cut */
#define FLAG_STR  28u   /* Py_TPFLAGS_*_SUBCLASS */
#define FLAG_TYPE 31u
#define COMPACT   3u /* compact and ascii, the bits above the kind in PyASCIIObject.state */

uint64_t recover_word(const struct recovery *recovery, uint64_t address)
{
	uint64_t at = address - recovery->data;

	return address < recovery->data || recovery->data_bytes < WORD ||
			       at > recovery->data_bytes - WORD
		       ? 0
		       : u64_at(recovery->content + at);
}

static int is_type_type(const struct recovery *recovery, uint64_t address)
{
	const struct python_offsets *offsets = recovery->offsets;
	uint32_t name = offsets->heap.type_name;

	if (recover_word(recovery, address + offsets->abi.object_type) != address ||
	    !(recover_word(recovery, address + offsets->heap.type_flags) >> FLAG_TYPE & 1) ||
	    recover_word(recovery, address + name + WORD) != offsets->objects.heaptype_bytes)
		return 0;
	uint64_t object = recover_word(recovery, address + offsets->objects.type_base);
	return object && recover_word(recovery, object + offsets->abi.object_type) == address &&
	       !recover_word(recovery, object + offsets->objects.type_base);
}

static int type_add(struct recovery *recovery, uint64_t address, uint64_t name)
{
	const struct python_offsets *offsets = recovery->offsets;
	struct recovered_type type = {
		.address = address,
		.name_at = name,
		.base = recover_word(recovery, address + offsets->objects.type_base),
		.flags = recover_word(recovery, address + offsets->heap.type_flags)};
	int err = ARRAY_GROW(recovery->types, recovery->type_capacity, recovery->type_count);

	if (err)
		return err;
	if (type.flags >> FLAG_STR & 1 && type.base == recovery->object)
		recovery->str = address;
	recovery->types[recovery->type_count++] = type;
	return 0;
}

/* Whether address is a type: its own is PyType_Type, or has that one as its type. */
static int is_type(const struct recovery *recovery, uint64_t address, uint64_t *name)
{
	const struct python_offsets *offsets = recovery->offsets;
	uint64_t type = recover_word(recovery, address + offsets->abi.object_type);

	if (type != recovery->type_type)
		return 0;
	*name = recover_word(recovery, address + offsets->heap.type_name);
	return *name >= recovery->file_start && *name < recovery->data;
}

int recover_types(struct recovery *recovery)
{
	const struct python_offsets *offsets = recovery->offsets;
	uint64_t end = recovery->data + recovery->data_bytes, name;
	uint32_t found = 0;
	int err = 0;

	recovery->type_count = 0;
	recovery->str = 0;
	for (uint64_t at = recovery->data; at < end; at += WORD)
		if (is_type_type(recovery, at)) {
			recovery->type_type = at;
			found++;
		}
	if (found != 1)
		return -ENOENT;
	recovery->object = recover_word(recovery, recovery->type_type + offsets->objects.type_base);
	for (uint64_t at = recovery->data; at < end && !err; at += WORD)
		if (recovery->type_count < MAX_TYPES && is_type(recovery, at, &name))
			err = type_add(recovery, at, name);
	return err ?: recovery->str ? 0 : -ENOENT;
}

static struct recovered_type *type_at(const struct recovery *recovery, uint64_t address)
{
	if (address - recovery->data >= recovery->data_bytes)
		return NULL;
	size_t at = SORTED_ABOVE(recovery->types, recovery->type_count, address, address);
	return at && recovery->types[at - 1].address == address ? &recovery->types[at - 1] : NULL;
}

/* What a text is, of those that were read last. */
struct types_text {
	uint64_t address;
	int16_t attribute, public; /* -1: none */
};

/* Reads the text of an object; "": it is no str, or of more than ASCII. */
static void text_read(const struct recovery *recovery, uint64_t address, char out[TEXT])
{
	const struct abi_offsets *abi = &recovery->offsets->abi;
	const struct memory_reader *memory = &recovery->copy->memory;
	uint64_t type, length;
	uint32_t state;

	out[0] = 0;
	if (address % WORD ||
	    memory->read(memory->context, address + abi->object_type, &type, WORD) ||
	    type != recovery->str ||
	    memory->read(memory->context, address + abi->unicode_state, &state, sizeof(state)) ||
	    (state >> abi->unicode_kind_shift & 7) != 1 ||
	    (state >> (abi->unicode_kind_shift + 3) & COMPACT) != COMPACT ||
	    memory->read(memory->context, address + abi->unicode_length, &length, WORD) ||
	    length >= TEXT ||
	    memory->read(memory->context, address + abi->unicode_ascii, out, length))
		length = 0;
	out[length] = 0;
}

static const struct types_text *text_find(const struct recovery *recovery, struct types_text *cache,
					  uint64_t address)
{
	static const struct types_text none = {.attribute = -1, .public = -1};
	struct types_text *text = &cache[address / WORD % CACHE];
	char content[TEXT];

	if (!address)
		return &none;
	if (text->address != address) {
		text_read(recovery, address, content);
		*text = (struct types_text){.address = address,
					    .attribute = (int16_t)recover_attribute(content),
					    .public = (int16_t)recover_public(content)};
	}
	return text;
}

/* A word of memory that is a type's address, with the words around it. */
static void word_take(struct recovery *recovery, struct types_text *cache,
		      struct recovered_type *type, uint64_t before, uint64_t after)
{
	struct recovered_type *descriptor = type_at(recovery, before);
	const struct types_text *text;

	if (descriptor) {
		text = text_find(recovery, cache, after);
		if (text->attribute >= 0) {
			type->attributes |= 1ull << text->attribute;
			descriptor->describes |= 1ull << text->attribute;
		}
		return;
	}
	text = text_find(recovery, cache, before);
	if (text->public >= 0)
		type->publics[text->public]++;
}

static void piece_take(struct recovery *recovery, struct types_text *cache, const uint8_t *piece,
		       size_t bytes)
{
	for (size_t at = WORD; at + 2 * WORD <= bytes; at += WORD) {
		struct recovered_type *type = type_at(recovery, u64_at(piece + at));

		if (type)
			word_take(recovery, cache, type, u64_at(piece + at - WORD),
				  u64_at(piece + at + WORD));
	}
}

/*
 * Pieces overlap, so that each word is read with those around it. What is missing of a map is its
 * end.
 */
static void map_take(struct recovery *recovery, struct types_text *cache,
		     const struct process_map *map, uint8_t *piece)
{
	const struct memory_reader *memory = &recovery->copy->memory;
	uint64_t bytes;

	for (uint64_t at = map->start; at < map->end; at += bytes) {
		bytes = map->end - at < PIECE ? map->end - at : PIECE;
		if (memory->read(memory->context, at, piece, bytes)) {
			bytes = PAGE;
			if (memory->read(memory->context, at, piece, bytes))
				return;
		}
		piece_take(recovery, cache, piece, bytes);
		if (bytes > PAGE && at + bytes < map->end)
			bytes -= PAGE;
	}
}

int recover_types_name(struct recovery *recovery)
{
	const struct process_maps *maps = recovery->copy->maps;
	struct types_text *cache = calloc(CACHE, sizeof(*cache));
	uint8_t *piece = malloc(PIECE);

	for (size_t i = 0; cache && piece && i < maps->count; i++)
		if (maps->entries[i].readable && maps->entries[i].writable &&
		    !maps->entries[i].inode)
			map_take(recovery, cache, &maps->entries[i], piece);
	if (cache && piece)
		recover_names(recovery->types, recovery->type_count, recovery->object,
			      recovery->offsets->version);
	free(piece);
	free(cache);
	return cache && piece ? 0 : -ENOMEM;
}
