/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind_load/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/regular.h"
#include "process/process.h"

#define NO_LINKS (RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* The path of the file, as the process sees it. 0; -ENOENT, -errno. */
static int mapped_path(pid_t pid, const struct stat *file, char path[PATH_MAX])
{
	struct process_maps maps;
	int err = process_maps_read(pid, &maps);

	if (err)
		return err;
	err = -ENOENT;
	for (size_t i = 0; err && i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (process_map_is_code(map, file) && map->path[0] == '/' &&
		    strlen(map->path) < PATH_MAX) {
			strcpy(path, map->path);
			err = 0;
		}
	}
	process_maps_free(&maps);
	return err;
}

/* -1: it is no folder, or there is none. */
static int folder_open(int root, const char *path)
{
	return regular_folder(root, path, NO_LINKS);
}

/* Looks below this folder, of this length. */
static int folder_find(struct unwind_modules *out, int root, const char *above, int length,
		       uint32_t version_hex)
{
	/* With a "t" it is that of a build without the global lock. */
	static const char *const forms[] = {
		"%.*s/lib/python%u.%u/lib-dynload", "%.*s/lib64/python%u.%u/lib-dynload",
		"%.*s/lib/python%u.%ut/lib-dynload", "%.*s/lib64/python%u.%ut/lib-dynload"};
	char path[PATH_MAX + 64];

	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		snprintf(path, sizeof(path), forms[i], length, above, version_hex >> 24,
			 version_hex >> 16 & 0xff);
		out->fd = folder_open(root, path);
		if (out->fd < 0)
			continue;
		out->path = strdup(path);
		return 0;
	}
	return -ENOENT;
}

int unwind_modules_open(struct unwind_modules *out, pid_t pid, const struct stat *interpreter,
			uint32_t version_hex)
{
	char path[PATH_MAX];
	int root, err = mapped_path(pid, interpreter, path);

	if (err)
		return err;
	root = process_root_open(pid);
	if (root < 0)
		root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	err = -ENOENT;
	for (size_t i = 0; err && i < UNWIND_MODULE_ABOVE && strrchr(path, '/'); i++) {
		*strrchr(path, '/') = '\0';
		err = folder_find(out, root, path, (int)strlen(path), version_hex);
	}
	close(root);
	return err;
}

static int is_module(const char *name)
{
	size_t length = strlen(name);

	return length > 3 && !strcmp(name + length - 3, ".so");
}

/* A file of the folder; -1: it is none that can be compiled. */
static int module_open(int folder, const char *name)
{
	int fd = regular_open(folder, name, NO_LINKS);
	struct stat st;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && st.st_size <= UNWIND_MODULE_BYTES)
		return fd;
	close(fd);
	return -1;
}

static char *module_path(const char *folder, const char *name)
{
	char *path = NULL;

	return folder && asprintf(&path, "%s/%s", folder, name) >= 0 ? path : NULL;
}

struct modules_walk {
	const struct unwind_modules *modules;
	unwind_module_fn each;
	void *context;
};

static int name_take(void *context, const char *name)
{
	const struct modules_walk *walk = context;
	int fd = is_module(name) ? module_open(walk->modules->fd, name) : -1;

	return fd >= 0 && walk->each(walk->context, fd, module_path(walk->modules->path, name));
}

void unwind_modules_each(const struct unwind_modules *modules, unwind_module_fn each, void *context)
{
	struct modules_walk walk = {modules, each, context};

	regular_names(modules->fd, UNWIND_MODULE_NAMES, name_take, &walk);
}

void unwind_modules_close(struct unwind_modules *modules)
{
	close(modules->fd);
	free(modules->path);
	*modules = (struct unwind_modules){.fd = -1};
}
