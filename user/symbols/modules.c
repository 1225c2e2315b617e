/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "symbols/files.h"
#include "symbols/jit_map.h"
#include "symbols/symbols_state.h"
#include "target/process.h"

#define ROOT_UNKNOWN (-2)
#define ROOT_OURS    (-1)

/* A descriptor of the process's root directory, ROOT_OURS when it is the same as ours or cannot be known. */
static int root_open(pid_t pid)
{
	struct stat theirs, ours;
	char name[32];
	int root;

	snprintf(name, sizeof(name), "/proc/%d/root", pid);
	root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return ROOT_OURS;
	if (!fstat(root, &theirs) && !stat("/", &ours) &&
	    (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino))
		return root;
	close(root);
	return ROOT_OURS;
}

/* "[vdso]" and its like; memory that has another name than a file's in brackets is the target's to name. */
static const char *module_path(const struct process_map *map)
{
	return map->path[0] && (map->path[0] == '/' || map->path[0] == '[') ? map->path : "[anon]";
}

static int module_take(struct modules *modules, const struct process_map *map, int *root)
{
	struct module *module = &modules->entries[modules->count];

	*module = (struct module){.start = map->start,
				  .end = map->end,
				  .offset = map->offset,
				  .device_major = map->device_major,
				  .device_minor = map->device_minor,
				  .inode = map->inode,
				  .path = strdup(module_path(map))};
	if (!module->path)
		return -ENOMEM;
	modules->count++;
	if (!map->inode)
		return 0;
	if (*root == ROOT_UNKNOWN)
		*root = root_open(modules->pid);
	module->file_err = files_get(modules->symbols->files, &module->file, modules->pid, map, *root);
	modules->refused += module->file_err != 0;
	return module->file_err == -ENOMEM ? -ENOMEM : 0;
}

/* Some JITs write their code through a memfd, to have it mapped twice. */
static int is_code_of_jit(const struct module *module)
{
	static const char *const kernels[] = {"[vdso]", "[vsyscall]", "[uprobes]"};

	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (!strcmp(module->path, kernels[i]))
			return 0;
	return !module->file || !strncmp(module->path, "/memfd:", strlen("/memfd:"));
}

static int has_code_of_jit(const struct modules *modules)
{
	for (size_t i = 0; i < modules->count; i++)
		if (is_code_of_jit(&modules->entries[i]))
			return 1;
	return 0;
}

int modules_new(struct modules **out, struct symbols *symbols, pid_t pid)
{
	struct modules *modules = calloc(1, sizeof(*modules));
	struct process_maps maps = {0};
	int root = ROOT_UNKNOWN, err;

	if (!modules)
		return -ENOMEM;
	modules->symbols = symbols;
	modules->pid = pid;
	err = process_maps_read(pid, &maps);
	if (!err) {
		modules->entries = calloc(maps.count + 1, sizeof(*modules->entries));
		err = modules->entries ? 0 : -ENOMEM;
	}
	for (size_t i = 0; !err && i < maps.count; i++)
		if (maps.entries[i].executable)
			err = module_take(modules, &maps.entries[i], &root);
	if (root >= 0)
		close(root);
	process_maps_free(&maps);
	if (err) {
		modules_free(modules);
		return err;
	}
	if (has_code_of_jit(modules))
		jit_map_get(&symbols->jit_maps, &modules->jit, pid); /* most have none */
	*out = modules;
	return 0;
}

void modules_free(struct modules *modules)
{
	if (!modules)
		return;
	for (size_t i = 0; i < modules->count; i++) {
		if (modules->entries[i].file)
			files_put(modules->symbols->files, modules->entries[i].file);
		free(modules->entries[i].path);
	}
	jit_map_put(&modules->symbols->jit_maps, modules->jit);
	free(modules->entries);
	free(modules);
}

const struct module *modules_find(const struct modules *modules, uint64_t address)
{
	size_t low = 0, high;

	for (high = modules->count; low < high;) {
		size_t middle = low + (high - low) / 2;

		if (modules->entries[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < modules->count && modules->entries[low].start <= address ? &modules->entries[low] : NULL;
}
