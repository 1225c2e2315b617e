/* SPDX-License-Identifier: Apache-2.0 */
#include "object/symbols/modules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/perfmap/jitdump.h"
#include "object/symbols/files.h"
#include "object/symbols/jit_map.h"
#include "object/symbols/symbols_state.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/descriptor.h"
#include "util/sorted.h"

#define ROOT_UNKNOWN (-2)

/*
 * The name in the maps if it is a path or in brackets, such as "[vdso]"; the target can choose any
 * other name.
 */
static const char *module_path(const struct process_map *map)
{
	return map->path[0] && (map->path[0] == '/' || map->path[0] == '[') ? map->path : "[anon]";
}

/* Inserts an entry at index at. */
static int module_take(struct modules *modules, size_t at, const struct process_map *map, int *root)
{
	int err = ARRAY_GROW(modules->entries, modules->capacity, modules->count);
	char *path = err ? NULL : strdup(module_path(map));

	if (!path)
		return -ENOMEM;
	struct module *module = &modules->entries[at];
	memmove(module + 1, module, (modules->count++ - at) * sizeof(*module));
	*module = (struct module){.start = map->start,
				  .end = map->end,
				  .offset = map->offset,
				  .device_major = map->device_major,
				  .device_minor = map->device_minor,
				  .inode = map->inode,
				  .path = path};
	if (!map->inode)
		return 0;
	if (*root == ROOT_UNKNOWN)
		*root = process_root_open(modules->pid);
	module->file_err =
		files_get(modules->symbols->files, &module->file, modules->pid, map, *root);
	modules->refused += module->file_err != 0;
	return module->file_err == -ENOMEM ? -ENOMEM : 0;
}

/* Some JITs map their code twice, through a memfd. */
static bool is_code_of_jit(const struct module *module)
{
	static const char *const kernels[] = {"[vdso]", "[vsyscall]", "[uprobes]"};

	for (size_t i = 0; i < ARRAY_SIZE(kernels); i++)
		if (!strcmp(module->path, kernels[i]))
			return 0;
	return !module->file || !strncmp(module->path, "/memfd:", strlen("/memfd:"));
}

static bool has_code_of_jit(const struct modules *modules)
{
	for (size_t i = 0; i < modules->count; i++)
		if (is_code_of_jit(&modules->entries[i]))
			return 1;
	return 0;
}

/* The index of a map that is there; jit_count: it is not. */
static size_t jit_index(const struct modules *modules, const struct jit_map *map)
{
	size_t i = 0;

	while (i < modules->jit_count && modules->jit[i] != map)
		i++;
	return i;
}

/* Takes a map of the process itself, or gives it back. What its parent wrote gives way. */
static void jit_own_add(struct modules *modules, struct jit_map *map)
{
	size_t at = jit_index(modules, map);

	if (at < modules->jit_own || modules->jit_own == MODULES_JIT_MAX) {
		jit_map_put(&modules->symbols->jit_maps, map);
		return;
	}
	if (at == MODULES_JIT_MAX)
		at--;
	if (at < modules->jit_count)
		jit_map_put(&modules->symbols->jit_maps, modules->jit[at]);
	else
		modules->jit_count++;
	memmove(&modules->jit[modules->jit_own + 1], &modules->jit[modules->jit_own],
		(at - modules->jit_own) * sizeof(modules->jit[0]));
	modules->jit[modules->jit_own++] = map;
}

static void jit_inherit(struct modules *modules, struct jit_map *map)
{
	if (modules->jit_count == MODULES_JIT_MAX || jit_index(modules, map) < modules->jit_count)
		return;
	jit_map_share(map);
	modules->jit[modules->jit_count++] = map;
}

/* Most processes have no perf map, and no jitdump. */
static void jit_find(struct modules *modules, const struct process_maps *maps)
{
	struct symbols *symbols = modules->symbols;
	struct jit_map *map;

	if (!jit_map_get(&symbols->jit_maps, &map, modules->pid, symbols->account))
		jit_own_add(modules, map);
	for (size_t i = 0; i < maps->count && modules->jit_own < MODULES_JIT_MAX; i++) {
		const struct process_map *at = &maps->entries[i];
		int fd = at->inode && jitdump_writer(at->path) >= 0
				 ? process_map_open(modules->pid, at)
				 : -1;

		if (fd >= 0 && !jit_map_get_dump(&symbols->jit_maps, &map, fd, symbols->account))
			jit_own_add(modules, map);
	}
}

int modules_jit_look(struct modules *modules)
{
	_cleanup_(process_maps_free) struct process_maps maps = {0};
	int err = process_maps_read(modules->pid, &maps);

	if (!err)
		jit_find(modules, &maps);
	return err ? err : modules->jit_own ? 0 : -ENOENT;
}

void modules_jit_share(struct modules *modules, const struct modules *from)
{
	for (size_t i = 0; i < from->jit_count; i++) {
		if (modules->pid != from->pid || i >= from->jit_own) {
			jit_inherit(modules, from->jit[i]);
			continue;
		}
		jit_map_share(from->jit[i]);
		jit_own_add(modules, from->jit[i]);
	}
}

int modules_jit_missing(const struct modules *modules, const struct module *module)
{
	return !modules->jit_own && is_code_of_jit(module);
}

int modules_begin(struct modules **out, struct symbols *symbols, pid_t pid)
{
	struct modules *modules = calloc(1, sizeof(*modules));

	if (!modules)
		return -ENOMEM;
	modules->symbols = symbols;
	modules->pid = pid;
	*out = modules;
	return 0;
}

int modules_new(struct modules **out, struct symbols *symbols, pid_t pid)
{
	struct modules *modules;
	struct process_maps maps = {0};
	int root = ROOT_UNKNOWN, err = modules_begin(&modules, symbols, pid);

	if (err)
		return err;
	err = process_maps_read(pid, &maps);
	for (size_t i = 0; !err && i < maps.count; i++)
		if (maps.entries[i].executable)
			err = module_take(modules, modules->count, &maps.entries[i], &root);
	descriptor_close(root);
	if (!err && has_code_of_jit(modules))
		jit_find(modules, &maps);
	process_maps_free(&maps);
	if (err) {
		modules_free(modules);
		return err;
	}
	*out = modules;
	return 0;
}

static void module_drop(struct modules *modules, size_t at)
{
	struct module *module = &modules->entries[at];

	if (module->file)
		files_put(modules->symbols->files, module->file);
	modules->refused -= module->file_err != 0;
	free(module->path);
	memmove(module, module + 1, (--modules->count - at) * sizeof(*module));
}

void modules_free(struct modules *modules)
{
	if (!modules)
		return;
	while (modules->count)
		module_drop(modules, modules->count - 1);
	while (modules->jit_count)
		jit_map_put(&modules->symbols->jit_maps, modules->jit[--modules->jit_count]);
	free(modules->entries);
	free(modules);
}

/* The first entry that ends above the address. */
static size_t module_at(const struct modules *modules, uint64_t address)
{
	return SORTED_ABOVE(modules->entries, modules->count, end, address);
}

int modules_copy(struct modules **out, const struct modules *from, pid_t pid)
{
	struct modules *copy;
	int err = modules_begin(&copy, from->symbols, pid);

	if (err)
		return err;
	err = array_reserve(&copy->entries, &copy->capacity, 0, from->count + 1,
			    sizeof(*copy->entries));
	for (; !err && copy->count < from->count; copy->count++) {
		struct module *module = &copy->entries[copy->count];

		*module = from->entries[copy->count];
		module->path = strdup(module->path);
		if (!module->path) {
			err = -ENOMEM;
			break;
		}
		if (module->file)
			files_share(module->file);
	}
	copy->refused = from->refused;
	modules_jit_share(copy, from);
	if (err) {
		modules_free(copy);
		return err;
	}
	*out = copy;
	return 0;
}

int modules_map(struct modules *modules, const struct process_map *map)
{
	size_t at = module_at(modules, map->start);
	int root = ROOT_UNKNOWN, err;

	while (at < modules->count && modules->entries[at].start < map->end)
		module_drop(modules, at);
	err = module_take(modules, at, map, &root);
	descriptor_close(root);
	return err;
}

const struct module *modules_find(const struct modules *modules, uint64_t address)
{
	size_t low = module_at(modules, address);

	return low < modules->count && modules->entries[low].start <= address
		       ? &modules->entries[low]
		       : NULL;
}

bool symbols_binary(const struct modules *modules, uint64_t address, struct symbols_binary *out)
{
	const struct module *module = modules_find(modules, --address);

	if (!module)
		return false;
	*out = (struct symbols_binary){.path = module->path, .build_id = ""};
	if (module->file && !file_read(module->file) &&
	    !elf_file_segment(module->file->elf, address - module->start + module->offset,
			      &out->segment))
		out->build_id = elf_file_build_id(module->file->elf);
	return true;
}
