/* SPDX-License-Identifier: Apache-2.0 */
#include "process/memory_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "process/process.h"

#define PAGE       4096u
#define AGE_NS     1000000000ull
#define RENEWALS   32u /* within that time: a target may map and unmap as fast as it can */
#define ZERO_FILE  "/dev/zero"
#define SHARED_DIR "/dev/shm/"

static int starts(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* Files below /sys are registers of devices, too (PCI's resource0). */
static int is_device(const char *path)
{
	return starts(path, "/sys/") ||
	       (starts(path, "/dev/") && !starts(path, SHARED_DIR) && !starts(path, ZERO_FILE));
}

static enum view_kind kind_of(const struct process_map *map)
{
	if (!map->readable)
		return VIEW_NONE;
	if (map->inode)
		return is_device(map->path)           ? VIEW_NONE
		       : map->shared                  ? VIEW_SHARED
		       : starts(map->path, ZERO_FILE) ? VIEW_PRIVATE
						      : VIEW_FILE;
	if (map->path[0] == '[' && !starts(map->path, "[heap]") && !starts(map->path, "[stack") &&
	    !starts(map->path, "[anon"))
		return VIEW_NONE;
	return map->shared ? VIEW_SHARED : VIEW_PRIVATE;
}

static int view_read(struct view *view, uint64_t now_ns)
{
	struct view_range *ranges;
	struct process_maps maps;
	size_t count = 0;
	int err = process_maps_read(view->pid, &maps);

	if (err)
		return err;
	ranges = calloc(maps.count + 1, sizeof(*ranges));
	for (size_t i = 0; ranges && i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];
		enum view_kind kind = kind_of(map);

		if (count && ranges[count - 1].end == map->start && ranges[count - 1].kind == kind)
			ranges[count - 1].end = map->end;
		else if (kind != VIEW_NONE)
			ranges[count++] = (struct view_range){map->start, map->end, kind};
	}
	process_maps_free(&maps);
	if (!ranges)
		return -ENOMEM;
	/* Files may be mapped elsewhere now. */
	view_drop(view);
	view->ranges = ranges;
	view->count = count;
	view->read_ns = now_ns;
	return 0;
}

static int view_renew(struct view *view)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC_COARSE);
	unsigned int renewed = now_ns - view->read_ns < AGE_NS ? view->renewed + 1 : 0;
	int err = view_read(view, now_ns);

	/* We may have lost the right to read them since. */
	if (err == -EPERM && view->read_ns)
		err = 0;
	view->read_ns = now_ns;
	view->renewed = renewed;
	return err;
}

static struct view_range range_at(const struct view *view, uint64_t address)
{
	size_t low = 0, high = view->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (view->ranges[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == view->count)
		return (struct view_range){address, UINT64_MAX, VIEW_NONE};
	if (view->ranges[low].start > address)
		return (struct view_range){address, view->ranges[low].start, VIEW_NONE};
	return view->ranges[low];
}

int view_find(struct view *view, uint64_t address, int exists, struct view_range *out)
{
	int err = 0;

	if (!view->read_ns || clock_ns(CLOCK_MONOTONIC_COARSE) - view->read_ns > AGE_NS)
		err = view_renew(view);
	if (!err)
		*out = range_at(view, address);
	if (!err && exists && out->kind == VIEW_NONE && view->renewed < RENEWALS) {
		err = view_renew(view);
		*out = err ? *out : range_at(view, address);
	}
	return err;
}

static void file_add(struct view *view, const struct process_map *map)
{
	struct view_file *file = &view->files[view->file_next];

	if (view->file_count > view->file_next && file->fd >= 0)
		close(file->fd);
	*file = (struct view_file){map->start, map->end, map->offset,
				   process_map_open(view->pid, map)};
	view->file_next = (view->file_next + 1) % VIEW_FILES;
	view->file_count += view->file_count < VIEW_FILES;
}

static const struct view_file *file_known(const struct view *view, uint64_t address)
{
	for (unsigned int i = 0; i < view->file_count; i++)
		if (address >= view->files[i].start && address < view->files[i].end)
			return &view->files[i];
	return NULL;
}

static int file_find(struct view *view, uint64_t address, const struct view_file **out)
{
	struct process_maps maps;
	int err;

	*out = file_known(view, address);
	if (*out)
		return 0;
	err = process_maps_read(view->pid, &maps);
	if (err)
		return err == -EPERM ? -EFAULT : err;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (address >= map->start && address < map->end && kind_of(map) == VIEW_FILE)
			file_add(view, map);
	}
	process_maps_free(&maps);
	*out = file_known(view, address);
	return *out ? 0 : -EFAULT;
}

int view_file_read(struct view *view, uint64_t address, void *out, size_t bytes)
{
	const struct view_file *file;
	int err = file_find(view, address, &file);
	uint64_t page = address & ~(uint64_t)(PAGE - 1);
	uint8_t content[PAGE] = {0};

	if (err)
		return err;
	if (file->fd < 0 || bytes > PAGE - (address - page) ||
	    pread(file->fd, content, PAGE, (off_t)(file->offset + (page - file->start))) <= 0)
		return -EFAULT;
	memcpy(out, content + (address - page), bytes);
	return 0;
}

void view_drop(struct view *view)
{
	for (unsigned int i = 0; i < view->file_count; i++)
		if (view->files[i].fd >= 0)
			close(view->files[i].fd);
	free(view->ranges);
	*view = (struct view){.pid = view->pid};
}
