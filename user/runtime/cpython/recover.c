/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A core has the variables of every mapped file, since processes write to them. In the variables of
 * each file a static type PyType_Type is sought by the form that it has in each known version, then
 * _PyRuntime: from 3.13 on it begins with a mark and its version, before it is where a word leads
 * to an interpreter whose threads refer to it. What was found is proven as in a running process.
 */
#include "runtime/cpython/recover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cpython/layout.h"
#include "runtime/cpython/types.h"
#include "util/array.h"
#include "util/error.h"
#include "util/sorted.h"
#include "util/word.h"

/*
 * PyType_Type is the only variable that is its own type and has the size of a class. Each variable
 * of that type, or of a type of it, whose name lies in front of the file's variables, is a static
 * type. What names them is sought in all memory: words that are the address of one.
 */

#define WORD      8u
#define PAGE      4096u
#define PIECE     (1u << 20) /* bytes read at once */
#define MAX_TYPES 4096u
#define CACHE     4096u /* texts; a power of two */
#define TEXT      64u   /* of a name, cut */
#define FLAG_STR  28u   /* Py_TPFLAGS_*_SUBCLASS */
#define FLAG_TYPE 31u
#define COMPACT   3u /* compact and ascii, the bits above the kind in PyASCIIObject.state */

/* The word at an address within the variables; 0: it is not there. */
static uint64_t recover_word(const struct recovery *recovery, uint64_t address)
{
	uint64_t at = address - recovery->data;

	return address < recovery->data || recovery->data_bytes < WORD ||
			       at > recovery->data_bytes - WORD
		       ? 0
		       : u64_at(recovery->content + at);
}

static bool is_type_type(const struct recovery *recovery, uint64_t address)
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
static bool is_type(const struct recovery *recovery, uint64_t address, uint64_t *name)
{
	const struct python_offsets *offsets = recovery->offsets;
	uint64_t type = recover_word(recovery, address + offsets->abi.object_type);

	if (type != recovery->type_type)
		return 0;
	*name = recover_word(recovery, address + offsets->heap.type_name);
	return *name >= recovery->file_start && *name < recovery->data;
}

/*
 * Finds the static types by the offsets that are tried. 0; -ENOENT: there are none, they are of
 * other offsets; -ENOMEM.
 */
static int recover_types(struct recovery *recovery)
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

/* Reads all memory, and names the types. 0, -ENOMEM. */
static int recover_types_name(struct recovery *recovery)
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

#define WORD      8u
#define PAGE      4096u
#define MAX_FILE  (64u << 20)  /* variables of a file */
#define MAX_ASKED (8ull << 30) /* of all files */
#define MAX_DATA  (256u << 20) /* of these, that the copy has */
#define MAX_SCANS 32u
#define MAX_PROOF 256u
#define MAX_BSS   (16u << 20) /* of a file's .bss: what follows it may be one map with it */
#define LINKS     8u          /* words at the start of a thread's state */
#define FIRST     0x0308u     /* versions */
#define FIRST_OWN 0x030du     /* with a mark and debug offsets */
#define MARK      "xdebugpy"

static int read_word(const struct recovery *recovery, uint64_t address, uint64_t *out)
{
	const struct memory_reader *memory = &recovery->copy->memory;

	return memory->read(memory->context, address, out, sizeof(*out));
}

/* Copies the variables, up to the last page that the copy has. */
static int data_read(struct recovery *recovery)
{
	const struct memory_reader *memory = &recovery->copy->memory;
	uint64_t end = 0;

	if (recovery->data_bytes > MAX_FILE || recovery->data_bytes > recovery->limits->asked_bytes)
		return -ENOENT;
	recovery->limits->asked_bytes -= recovery->data_bytes;
	recovery->content = calloc(1, recovery->data_bytes);
	if (!recovery->content)
		return -ENOMEM;
	for (uint64_t at = 0; at < recovery->data_bytes; at += PAGE) {
		if (memory->read(memory->context, recovery->data + at, recovery->content + at,
				 PAGE))
			memset(recovery->content + at, 0, PAGE);
		else
			end = at + PAGE;
	}
	recovery->data_bytes = end;
	if (!end || end > recovery->limits->data_bytes)
		return -ENOENT;
	recovery->limits->data_bytes -= end;
	return 0;
}

/* Reads the variables of the file whose first map is number `first`. 0; -ENOENT: it has none. */
static int data_load(struct recovery *recovery, size_t first)
{
	const struct process_maps *maps = recovery->copy->maps;
	const struct process_map *map = &maps->entries[first], *end = maps->entries + maps->count;
	uint64_t inode = map->inode;

	recovery->file_start = map->start;
	while (map < end && (map->inode != inode || !map->writable))
		if (++map == end || map - &maps->entries[first] > 64)
			return -ENOENT;
	recovery->data = map->start;
	while (map + 1 < end && map[1].start == map->end && map[1].inode == inode)
		map++;
	recovery->data_bytes = map->end - recovery->data;
	if (map + 1 < end && map[1].start == map->end && !map[1].inode && map[1].writable)
		recovery->data_bytes +=
			map[1].end - map[1].start < MAX_BSS ? map[1].end - map[1].start : MAX_BSS;
	return data_read(recovery);
}

static int names_put(const struct recovery *recovery)
{
	const struct runtime_copy *copy = recovery->copy;
	int err = 0;

	for (size_t i = 0; i < recovery->type_count && !err; i++)
		if (recovery->types[i].name)
			err = copy->put(copy->memory.context, recovery->types[i].name_at,
					recovery->types[i].name);
	return err;
}

/* Whether address is the state of an interpreter: its first thread refers to it. */
static bool is_interpreter(const struct recovery *recovery, uint64_t address)
{
	const struct memory_reader *memory = &recovery->copy->memory;
	uint64_t thread, links[LINKS];

	if (!address || address % WORD ||
	    read_word(recovery, address + recovery->offsets->abi.interp_threads_head, &thread) ||
	    !thread || thread % WORD || memory->read(memory->context, thread, links, sizeof(links)))
		return 0;
	for (unsigned int i = 0; i < LINKS; i++)
		if (links[i] == address)
			return 1;
	return 0;
}

/* Takes _PyRuntime's own offsets. */
static int own_apply(const struct recovery *recovery, uint64_t at, uint32_t hex,
		     struct python_offsets *offsets)
{
	uint8_t bytes[OFFSETS_DEBUG_BYTES] = {0};
	uint64_t left = recovery->data_bytes - at;

	memcpy(bytes, recovery->content + at, left < sizeof(bytes) ? left : sizeof(bytes));
	return offsets_apply_debug(bytes, hex, offsets);
}

/* Whether the offsets, with _PyRuntime at data + at, are those of the copy. 0; -errno. */
static int runtime_try(const struct recovery *recovery, uint64_t at, uint32_t hex,
		       struct python_runtime *out)
{
	struct python_runtime runtime = {.copy = recovery->copy, .version_hex = hex};
	struct python_offsets *offsets = malloc(sizeof(*offsets));
	int err = 0;

	if (!offsets)
		return -ENOMEM;
	*offsets = *recovery->offsets;
	offsets_apply_machine(machine_own(), offsets);
	if (offsets->version >= FIRST_OWN) {
		err = offsets_apply_release(hex, offsets);
		err = err < 0 ? err : own_apply(recovery, at, hex, offsets);
	}
	runtime.offsets = offsets;
	runtime.target.runtime = recovery->data + at;
	runtime.target.offsets = offsets->abi;
	runtime.found = (struct runtime_found){.type_type = recovery->type_type,
					       .data = recovery->data,
					       .data_bytes = recovery->data_bytes};
	if (err >= 0)
		err = recovery->limits->proofs ? layout_prove(&runtime) : -ENOENT;
	recovery->limits->proofs -= recovery->limits->proofs != 0;
	if (!err && !offsets->heap.interp_obmalloc && offsets->build != BUILD_FREE_THREADED &&
	    recover_arenas(offsets, &recovery->copy->memory, recovery->content,
			   recovery->data_bytes, recovery->data, &runtime.found))
		err = error_set(-ENODATA, "pymalloc's arenas are not found in its variables");
	if (err) {
		free(offsets);
		return err;
	}
	*out = runtime;
	return 0;
}

/* Tries the offsets of a version before 3.13, of which only the forms tell. */
static int older_try(const struct recovery *recovery, struct python_runtime *out)
{
	uint32_t head = recovery->offsets->abi.runtime_interpreters_head;
	int err = -ENOENT;

	for (uint64_t at = head; at + WORD <= recovery->data_bytes && err; at += WORD) {
		if (!is_interpreter(recovery, u64_at(recovery->content + at)))
			continue;
		err = runtime_try(recovery, at - head, recovery->offsets->version << 16, out);
		if (err == -ENOMEM || err == -ENODATA)
			break;
	}
	return err;
}

/* Finds and names the types by the offsets. 0; -ENOENT; -ENOMEM. */
static int offsets_try(struct recovery *recovery, const struct python_offsets *offsets)
{
	recovery->offsets = offsets;
	int err = offsets ? recover_types(recovery) : -ENOENT;
	if (!err && !recovery->limits->scans)
		err = -ENOENT;
	recovery->limits->scans -= !err;
	return err ?: recover_types_name(recovery) ?: names_put(recovery);
}

/* Whether the path of a mapped file has the name of a version: "python3.11", or "python3.11d". */
static bool is_named(const struct runtime_copy *copy, uint32_t version, const char *build)
{
	char name[32];

	snprintf(name, sizeof(name), "python%u.%u%s", version >> 8, version & 0xff, build);
	for (size_t i = 0; i < copy->maps->count; i++) {
		const char *at = strstr(copy->maps->entries[i].path, name);

		if (at && (at[strlen(name)] < '0' || at[strlen(name)] > '9'))
			return 1;
	}
	return 0;
}

/* A debug build is hardly told from another by its variables: files with its name tell. */
static enum python_build build_nth(const struct recovery *recovery, uint64_t version,
				   unsigned int number)
{
	unsigned int debug = (unsigned int)is_named(recovery->copy, (uint32_t)version, "d");

	return debug ^ number ? BUILD_DEBUG : BUILD_RELEASE;
}

/* The version and build that _PyRuntime itself tells. -ENOENT: it has no mark here. */
static int marked_try(struct recovery *recovery, uint64_t at, struct python_runtime *out)
{
	uint64_t hex = u64_at(recovery->content + at + WORD);
	int free_threaded = u64_at(recovery->content + at + 2 * WORD) != 0, err = -ENOENT;

	if (hex >> 32 || hex >> 16 < FIRST_OWN)
		return -ENOENT;
	for (unsigned int i = 0; i < 2 && err; i++) {
		enum python_build build =
			free_threaded ? BUILD_FREE_THREADED : build_nth(recovery, hex >> 16, i);

		err = offsets_try(recovery, offsets_for((uint32_t)(hex >> 16), build))
			      ?: runtime_try(recovery, at, (uint32_t)hex, out);
	}
	return err;
}

static int marks_try(struct recovery *recovery, struct python_runtime *out)
{
	int err = -ENOENT;

	for (uint64_t at = 0; at + 3 * WORD <= recovery->data_bytes && err; at += WORD)
		if (!memcmp(recovery->content + at, MARK, WORD)) {
			int failed = marked_try(recovery, at, out);

			err = failed == -ENOENT ? err : failed;
		}
	return err;
}

/* Versions whose name is in a path first. */
static int versions_try(struct recovery *recovery, struct python_runtime *out)
{
	int err = -ENOENT;

	for (int named = 1; named >= 0; named--)
		for (uint32_t version = FIRST; version < FIRST_OWN && err; version++) {
			if (is_named(recovery->copy, version, "") != named)
				continue;
			for (unsigned int i = 0; i < 2 && err; i++) {
				enum python_build build = build_nth(recovery, version, i);
				int failed = offsets_try(recovery, offsets_for(version, build));

				if (!failed)
					failed = older_try(recovery, out);
				err = failed == -ENOENT ? err : failed;
			}
		}
	return err;
}

static int file_try(const struct runtime_copy *copy, size_t first, struct recover_limits *limits,
		    struct python_runtime *out)
{
	struct recovery recovery = {.copy = copy, .limits = limits};
	int err = data_load(&recovery, first);

	err = err ?: marks_try(&recovery, out);
	if (err == -ENOENT && recovery.content)
		err = versions_try(&recovery, out);
	free(recovery.content);
	free(recovery.types);
	return err;
}

/* The executable, then files called libpython, then all others. */
static int file_rank(const struct runtime_copy *copy, const struct process_map *map)
{
	return !strcmp(map->path, copy->executable)     ? 0
	       : strstr(map->path, "libpython") != NULL ? 1
							: 2;
}

int python_copy_recover(const struct runtime_copy *copy, struct python_runtime *out)
{
	const struct process_map *maps = copy->maps->entries;
	struct recover_limits limits = {MAX_ASKED, MAX_DATA, MAX_SCANS, MAX_PROOF};
	int err = -ENOENT;

	for (int rank = 0; rank <= 2; rank++)
		for (size_t i = 0; i < copy->maps->count && err; i++) {
			if (!maps[i].inode || maps[i].offset || file_rank(copy, &maps[i]) != rank)
				continue;
			int failed = file_try(copy, i, &limits, out);
			if (failed == -ENOMEM)
				return failed;
			err = failed == -ENOENT ? err : failed;
		}
	return err == -ENOENT ? error_set(err, "the variables of no mapped file are those of a "
					       "known CPython")
			      : err;
}
