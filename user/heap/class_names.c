/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/class_names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/word.h"
#include "layouts/dict_keys.h"
#include "layouts/text_state.h"
#include "process/memory.h"

#define FLAG_HEAP    (1ull << 9) /* Py_TPFLAGS_HEAPTYPE */
#define MAX_HEADER   128u  /* bytes of a table of keys, or of a str, in front of its contents */
#define MAX_KEYS     1024u /* of a class's dictionary that are read */
#define MAX_ENTRY    24u
#define MAX_KEY_LOOK 64u /* keys whose text is read, until the key's address is known */

static int bytes_read(struct class_names *names, uint64_t address, void *out, size_t bytes)
{
	if (!address || !names->reads)
		return 0;
	names->reads--;
	return !space_read(names->runtime->space, address, out, bytes);
}

static uint64_t word_read(struct class_names *names, uint64_t address)
{
	uint64_t word;

	return bytes_read(names, address, &word, sizeof(word)) ? word : 0;
}

/* The text of a compact ASCII str. 1; 0: it is none. */
static int text_read(struct class_names *names, uint64_t address, char out[HEAP_TYPE_NAME])
{
	const struct abi_offsets *abi = &names->runtime->offsets->abi;
	uint8_t header[MAX_HEADER] = {0};

	if (abi->unicode_ascii > sizeof(header) || abi->unicode_state + 8u > sizeof(header) ||
	    !bytes_read(names, address, header, abi->unicode_ascii) ||
	    !text_is_ascii(abi, u64_at(header + abi->unicode_state)))
		return 0;
	return !space_read_text(names->runtime->space, address + abi->unicode_ascii, out,
				HEAP_TYPE_NAME) &&
	       out[0];
}

/* Whether the key at address is '__module__', of which an interpreter has one. */
static int is_module_key(struct class_names *names, uint64_t address, size_t number)
{
	char text[HEAP_TYPE_NAME];

	if (names->module_key)
		return address == names->module_key;
	if (number >= MAX_KEY_LOOK || !text_read(names, address, text) ||
	    strcmp(text, "__module__") != 0)
		return 0;
	names->module_key = address;
	return 1;
}

/* The value of the key __module__ in the class's dictionary. */
static int module_read(struct class_names *names, uint64_t type, char out[HEAP_TYPE_NAME])
{
	const struct object_offsets *at = &names->runtime->offsets->objects;
	uint64_t dict = word_read(names, type + at->type_dict), table;
	uint8_t header[MAX_HEADER], entries[MAX_KEYS * MAX_ENTRY];
	struct keys keys;

	if (!dict || word_read(names, dict + at->dict_values) || at->keys_indices > sizeof(header))
		return 0;
	table = word_read(names, dict + at->dict_keys);
	if (!bytes_read(names, table, header, at->keys_indices) ||
	    dict_keys_decode(at, table, header, &keys))
		return 0;
	if (keys.count > MAX_KEYS)
		keys.count = MAX_KEYS;
	if (!bytes_read(names, keys.entries, entries, keys.count * keys.entry_bytes))
		return 0;
	for (size_t i = 0; i < keys.count; i++) {
		const uint8_t *entry = entries + i * keys.entry_bytes;

		if (is_module_key(names, u64_at(entry + keys.key_at), i))
			return text_read(names, u64_at(entry + keys.value_at), out);
	}
	return 0;
}

int class_name_read(struct class_names *names, struct heap_type *type)
{
	const struct object_offsets *at = &names->runtime->offsets->objects;
	char module[HEAP_TYPE_NAME], name[HEAP_TYPE_NAME];

	/* The name of a type that is written in C has its module. */
	if (!(type->flags & FLAG_HEAP) || strchr(type->name, '.'))
		return 0;
	if (!module_read(names, type->address, module)) {
		names->unknown += !names->reads;
		return 0;
	}
	if (!strcmp(module, "builtins"))
		return 0;
	if (!text_read(names, word_read(names, type->address + at->heaptype_qualname), name))
		snprintf(name, sizeof(name), "%s", type->name);
	if (asprintf(&type->full_name, "%s.%s", module, name) >= 0)
		return 0;
	type->full_name = NULL;
	return -ENOMEM;
}
