/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/namespace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cpython/dict_keys.h"
#include "runtime/cpython/text_state.h"
#include "util/error.h"
#include "util/word.h"

#define STATE_MAX   (64u << 10) /* of an interpreter's state, where sys.modules is looked for */
#define ENTRIES_MAX 65536u      /* looked at in a dictionary */
#define TEXT_MAX    64u
#define HEAD_MAX    64u         /* of a str and of a table of keys */
#define NO_DEBUG    "/dev/null" /* as debug_root: no debug files */

int namespace_type(const struct python_runtime *runtime, const char *name, uint64_t *address)
{
	struct elf_symbol symbol;

	if (!runtime->file || elf_file_symbol(runtime->file, name, &symbol))
		return error_set(-ENOTSUP, "its file does not tell where %s is", name);
	*address = symbol.vaddr + runtime->bias;
	return 0;
}

/* The main interpreter's state. 0; -ENOENT. */
static int interpreter_find(const struct python_runtime *runtime, uint64_t *address)
{
	const struct abi_offsets *at = &runtime->target.offsets;
	uint64_t state, id;
	int err = runtime_read_u64(runtime, runtime->target.runtime + at->runtime_interpreters_head,
				   &state);

	for (uint32_t i = 0; !err && state && i < NAMESPACE_INTERPRETERS; i++) {
		if (runtime_read_u64(runtime, state + runtime->offsets->objects.interp_id, &id))
			return -ENOENT;
		*address = state;
		if (!id)
			return 0;
		err = runtime_read_u64(runtime, state + at->interp_next, &state);
	}
	return -ENOENT;
}

uint64_t namespace_threads(const struct python_runtime *runtime)
{
	uint64_t state, tstate;

	if (interpreter_find(runtime, &state) ||
	    runtime_read_u64(runtime, state + runtime->target.offsets.interp_threads_head, &tstate))
		return 0;
	return tstate;
}

/* --- dictionaries ----------------------------------------------------------------------------- */

bool namespace_is_text(const struct python_runtime *runtime, uint64_t object, const char *text)
{
	const struct abi_offsets *at = &runtime->target.offsets;
	uint8_t bytes[HEAD_MAX + TEXT_MAX];
	size_t length = strlen(text), size = at->unicode_ascii + length;

	return at->unicode_ascii <= HEAD_MAX && length <= TEXT_MAX &&
	       !runtime_read(runtime, object, bytes, size) &&
	       u64_at(bytes + at->unicode_length) == length &&
	       text_is_ascii(at, u32_at(bytes + at->unicode_state)) &&
	       !memcmp(bytes + at->unicode_ascii, text, length);
}

/* Reads a dict's entries. NULL: it is no dict, it is damaged or split, or has too many. */
static uint8_t *entries_read(const struct python_runtime *runtime, uint64_t dict,
			     uint64_t dict_type, struct keys *keys)
{
	const struct object_offsets *at = &runtime->offsets->objects;
	uint64_t type, address, values;
	uint8_t head[HEAD_MAX];

	if (runtime_read_u64(runtime, dict + runtime->target.offsets.object_type, &type) ||
	    type != dict_type || runtime_read_u64(runtime, dict + at->dict_keys, &address) ||
	    runtime_read_u64(runtime, dict + at->dict_values, &values) || values ||
	    at->keys_indices > sizeof(head) ||
	    runtime_read(runtime, address, head, at->keys_indices) ||
	    dict_keys_decode(at, address, head, keys) || keys->count > ENTRIES_MAX)
		return NULL;
	size_t bytes = keys->count * keys->entry_bytes;
	uint8_t *entries = malloc(bytes + 1);
	if (entries && bytes && runtime_read(runtime, keys->entries, entries, bytes)) {
		free(entries);
		return NULL;
	}
	return entries;
}

static int dict_find(const struct python_runtime *runtime, uint64_t dict, uint64_t dict_type,
		     const char *text, struct module_item *out)
{
	struct keys keys;
	uint8_t *entries = entries_read(runtime, dict, dict_type, &keys);
	int err = -ENOENT;

	for (uint64_t i = 0; entries && err && i < keys.count; i++) {
		const uint8_t *entry = entries + i * keys.entry_bytes;

		out->key = u64_at(entry + keys.key_at);
		out->value = u64_at(entry + keys.value_at);
		if (out->key && out->value && namespace_is_text(runtime, out->key, text))
			err = 0;
	}
	free(entries);
	return err;
}

int namespace_dict_find(const struct python_runtime *runtime, uint64_t dict, const char *text,
			struct module_item *out)
{
	uint64_t dict_type = 0;
	int err = namespace_type(runtime, "PyDict_Type", &dict_type);

	return err ?: dict_find(runtime, dict, dict_type, text, out);
}

/* --- sys.modules ------------------------------------------------------------------------------ */

/* What namespace_modules() knows. */
struct namespace_search {
	const struct python_runtime *runtime;
	uint64_t dict_type, module_type;
};

/* The dictionary of a module of that name in sys.modules; 0: there is none. */
static uint64_t module_dict(const struct namespace_search *search, uint64_t modules,
			    const char *name)
{
	const struct python_runtime *runtime = search->runtime;
	struct module_item item;
	uint64_t type, dict;

	if (dict_find(runtime, modules, search->dict_type, name, &item) ||
	    runtime_read_u64(runtime, item.value + runtime->target.offsets.object_type, &type) ||
	    type != search->module_type ||
	    runtime_read_u64(runtime, item.value + runtime->offsets->objects.module_dict, &dict))
		return 0;
	return dict;
}

/* Its place in the interpreter's state differs by release: it is known by what it has. */
static int modules_place(const struct namespace_search *search, uint64_t *modules)
{
	const struct python_runtime *runtime = search->runtime;
	size_t bytes = runtime->offsets->objects.interp_bytes;
	uint64_t state, type;
	int err = interpreter_find(runtime, &state);

	if (err)
		return err;
	if (bytes > STATE_MAX)
		bytes = STATE_MAX;
	uint8_t *words = malloc(bytes + 8);
	if (!words)
		return -ENOMEM;
	err = runtime_read(runtime, state, words, bytes) ? -ENOENT : 0;
	*modules = 0;
	for (size_t at = 0; !err && !*modules && at + 8 <= bytes; at += 8) {
		uint64_t word = u64_at(words + at);

		if (word < 4096 || word & 7 ||
		    runtime_read_u64(runtime, word + runtime->target.offsets.object_type, &type) ||
		    type != search->dict_type)
			continue;
		if (module_dict(search, word, "sys") && module_dict(search, word, "builtins"))
			*modules = word;
	}
	free(words);
	return *modules ? 0 : err ?: -ENOENT;
}

int namespace_modules(const struct python_runtime *runtime, const char *const *names, size_t count,
		      uint64_t *dicts)
{
	struct namespace_search search = {.runtime = runtime};
	uint64_t modules = 0;
	int err = namespace_type(runtime, "PyDict_Type", &search.dict_type)
			  ?: namespace_type(runtime, "PyModule_Type", &search.module_type)
			  ?: modules_place(&search, &modules);

	for (size_t i = 0; !err && i < count; i++)
		dicts[i] = module_dict(&search, modules, names[i]);
	return err;
}

/* --- files ------------------------------------------------------------------------------------ */

int namespace_file_open(const struct python_runtime *runtime, const char *name,
			struct elf_file **file, uint64_t *bias)
{
	struct process_maps maps;
	int err = process_maps_read(runtime->pid, &maps), found = -ENOENT;

	if (err)
		return err;
	for (size_t i = 0; found && i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (!map->executable || !strstr(map->path, name))
			continue;
		int fd = process_map_open(runtime->pid, map);
		if (fd < 0)
			continue;
		if (elf_file_open(file, fd, map->path, NO_DEBUG)) {
			close(fd);
			continue;
		}
		found = elf_file_bias(*file, map->start, map->offset, bias);
		if (found)
			elf_file_close(*file);
	}
	process_maps_free(&maps);
	return found;
}
