/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/leftover.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proc/memory.h"
#include "proc/process.h"
#include "util/regular.h"

#define BREAKPOINT 0xcc /* int3 */

static bool is_site(const struct plan *plan, uint64_t offset)
{
	for (size_t i = 0; i < plan->count; i++)
		if (plan->sites[i].offset == offset)
			return 1;
	return 0;
}

static void piece_count(const struct plan *plan, const uint8_t *mapped, const uint8_t *wanted,
			size_t bytes, uint64_t offset, struct leftover *out)
{
	for (size_t i = 0; i < bytes; i++) {
		if (mapped[i] != BREAKPOINT || wanted[i] == BREAKPOINT)
			continue;
		if (is_site(plan, offset + i))
			out->at_sites++;
		else
			out->elsewhere++;
	}
}

static void page_count(struct space *space, const struct plan *plan, int fd, uint64_t address,
		       uint64_t offset, struct leftover *out)
{
	uint8_t mapped[SPACE_PAGE], wanted[SPACE_PAGE];
	ssize_t got = pread(fd, wanted, SPACE_PAGE, (off_t)offset);

	if (got > 0 && !space_read(space, address, mapped, (size_t)got))
		piece_count(plan, mapped, wanted, (size_t)got, offset, out);
}

/* Pages that are not in its memory are as in the file. left: bytes that may still be compared. */
static void map_count(struct space *space, const struct plan *plan, int fd,
		      const struct process_map *map, uint64_t *left, struct leftover *out)
{
	uint8_t what[SPACE_PAGES];
	uint64_t at = map->start;

	while (at < map->end && *left >= SPACE_PAGE) {
		uint64_t most = (map->end - at < *left ? map->end - at : *left) / SPACE_PAGE;
		size_t pages = most < SPACE_PAGES ? most : SPACE_PAGES;

		if (space_pages(space, at, pages, what))
			return;
		for (size_t i = 0; i < pages; i++, at += SPACE_PAGE)
			if (what[i] == SPACE_MEMORY)
				page_count(space, plan, fd, at, map->offset + (at - map->start),
					   out);
		*left -= pages * SPACE_PAGE;
	}
	out->bytes_unchecked += map->end - at;
}

int leftover_count(struct space *space, const struct plan *plan, const struct elf_file *file,
		   struct leftover *out)
{
	uint64_t left = LEFTOVER_BYTES_MAX;
	struct process_maps maps;
	struct stat st;
	int err =
		regular_stat(elf_file_fd(file), &st) ?: process_maps_read(space_pid(space), &maps);

	if (err)
		return err;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (process_map_is_code(map, &st))
			map_count(space, plan, elf_file_fd(file), map, &left, out);
	}
	process_maps_free(&maps);
	return 0;
}

struct leftover_walk {
	struct space *space;
	struct leftover *out;
};

static int plan_count(void *context, const struct plan *plan, const struct elf_file *file)
{
	const struct leftover_walk *walk = context;

	leftover_count(walk->space, plan, file, walk->out);
	return 0;
}

int leftover_process(pid_t pid, const struct plan_target_opts *opts, struct plan_caches *caches,
		     struct leftover *out)
{
	struct leftover_walk walk = {.out = out};
	struct plan_target target;
	int err = plan_target(pid, opts, caches, &target);

	if (err)
		return err;
	err = space_open(&walk.space, pid);
	if (!err)
		plan_target_each(&target, target.runtime.file, plan_count, &walk);
	plan_target_free(&target);
	space_close(walk.space);
	return err;
}
