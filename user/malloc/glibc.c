/* SPDX-License-Identifier: Apache-2.0 */
#include "malloc/glibc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "elf/elf_file.h"
#include "malloc/arenas.h"
#include "malloc/find.h"
#include "malloc/reader.h"
#include "process/memory.h"

#define DATA_MAX (256u * 1024) /* of libc's writable data, which takes 20 KiB */
#define TRIES    3

/* libc.so.6, or libc-2.31.so as the file was called up to 2.33. */
static int is_libc(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	return !strcmp(name, "libc.so.6") || !strncmp(name, "libc-2.", strlen("libc-2."));
}

static const struct process_map *libc_find(const struct process_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (maps->entries[i].inode && is_libc(maps->entries[i].path))
			return &maps->entries[i];
	return NULL;
}

/* -ENOENT: the file is no glibc. */
static int version_find(pid_t pid, const struct process_map *map, unsigned int *minor)
{
	struct elf_file *file;
	int fd = process_map_open(pid, map), err;

	if (fd < 0)
		return fd;
	err = elf_file_open(&file, fd, map->path, "");
	if (err) {
		close(fd);
		return err;
	}
	err = glibc_version_read(file, minor);
	elf_file_close(file);
	return err;
}

/* Searches one writable map of libc for both structures. -ENOENT: main_arena is not in it. */
static int data_search(struct glibc *glibc, const struct process_map *map, uint64_t heap_start)
{
	size_t size = map->end - map->start < DATA_MAX ? map->end - map->start : DATA_MAX;
	uint8_t *bytes = malloc(size);
	int err = bytes ? 0 : -ENOMEM;

	if (!err)
		err = space_read(glibc->space, map->start, bytes, size);
	if (!err)
		err = glibc_find_arena(glibc->layout, bytes, size, map->start, &glibc->main_arena);
	if (!err && heap_start &&
	    glibc_find_parameters(glibc->layout, bytes, size, map->start, heap_start,
				  &glibc->parameters))
		glibc->parameters = 0;
	free(bytes);
	return err;
}

/* libc's .bss follows its data without a gap; main_arena and mp_ are initialised data. */
static int structures_find(struct glibc *glibc, const struct process_map *libc,
			   const struct process_maps *maps)
{
	uint64_t heap_start = 0;
	int err = -ENOENT;

	for (size_t i = 0; i < maps->count; i++)
		if (!strcmp(maps->entries[i].path, "[heap]"))
			heap_start = maps->entries[i].start;
	for (size_t i = 0; i < maps->count && err == -ENOENT; i++) {
		const struct process_map *map = &maps->entries[i];

		if (map->writable && map->inode == libc->inode &&
		    map->device_major == libc->device_major &&
		    map->device_minor == libc->device_minor)
			err = data_search(glibc, map, heap_start);
	}
	if (err == -EEXIST)
		return error_set(-ENOTSUP, "several structures of its libc could be main_arena");
	if (err == -ENOENT)
		return error_set(-ENODATA, "malloc of its libc has no heap: another one is used, "
					   "of which only the size is known");
	return err;
}

static int glibc_new(struct glibc **out, struct space *space, unsigned int minor)
{
	struct glibc *glibc = calloc(1, sizeof(*glibc));
	int err;

	if (!glibc)
		return -ENOMEM;
	glibc->space = space_share(space);
	glibc->minor = minor;
	glibc->layout = glibc_layout_for(minor);
	err = glibc->layout
		      ? reader_new(&glibc->reader, space)
		      : error_set(-ENOTSUP, "malloc of glibc 2.%u is not known to tracer", minor);
	if (err) {
		glibc_close(glibc);
		return err;
	}
	*out = glibc;
	return 0;
}

int glibc_open(struct glibc **out, struct space *space, const struct process_maps *maps)
{
	const struct process_map *libc = libc_find(maps);
	struct glibc *glibc;
	unsigned int minor;
	int err = libc ? version_find(space_pid(space), libc, &minor) : -ENOENT;

	if (!err)
		err = glibc_new(&glibc, space, minor);
	if (err)
		return err;
	for (int i = 0; i < TRIES; i++) {
		err = structures_find(glibc, libc, maps);
		if (!err)
			err = glibc_look(glibc, maps);
		if (!err || (err != -ENOTSUP && err != -EFAULT && err != -ENODATA))
			break;
	}
	if (err) {
		glibc_close(glibc);
		return err;
	}
	*out = glibc;
	return 0;
}

int glibc_open_at(struct glibc **out, struct space *space, unsigned int minor, uint64_t main_arena,
		  uint64_t parameters, const struct process_maps *maps)
{
	struct glibc *glibc;
	int err = glibc_new(&glibc, space, minor);

	if (err)
		return err;
	glibc->main_arena = main_arena;
	glibc->parameters = parameters;
	err = glibc_look(glibc, maps);
	if (err) {
		glibc_close(glibc);
		return err;
	}
	*out = glibc;
	return 0;
}

void glibc_close(struct glibc *glibc)
{
	if (!glibc)
		return;
	reader_free(glibc->reader);
	space_close(glibc->space);
	free(glibc->arenas);
	free(glibc->heaps);
	free(glibc);
}

static void mmaps_read(struct glibc *glibc)
{
	uint64_t at = glibc->parameters, bytes;
	uint32_t count;

	glibc->mmaps = (struct glibc_mmaps){0};
	if (!at || reader_u64(glibc->reader, at - GLIBC_MMAPS_BYTES_BEFORE, &bytes) ||
	    reader_read(glibc->reader, at - glibc_mmaps_count_before(glibc->layout), &count,
			sizeof(count), 0))
		return;
	glibc->mmaps = (struct glibc_mmaps){count, bytes, 1};
}

int glibc_look(struct glibc *glibc, const struct process_maps *maps)
{
	int err = -ENOTSUP;

	for (int i = 0; i < TRIES && (err == -ENOTSUP || err == -EFAULT); i++) {
		reader_clear(glibc->reader);
		err = glibc_arenas_read(glibc, maps);
	}
	if (!err)
		mmaps_read(glibc);
	return err;
}
