/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/leftover.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "process/memory.h"
#include "process/process.h"

#define BREAKPOINT 0xcc /* int3 */
#define PIECE      4096u

static int is_site(const struct plan *plan, uint64_t offset)
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

/* left: bytes that may still be compared. */
static void map_count(pid_t pid, const struct plan *plan, int fd, const struct process_map *map,
		      uint64_t *left, struct leftover *out)
{
	uint8_t mapped[PIECE], wanted[PIECE];

	for (uint64_t at = 0; at < map->end - map->start; at += PIECE) {
		ssize_t got;

		if (*left < PIECE) {
			out->bytes_unlooked += map->end - map->start - at;
			break;
		}
		*left -= PIECE;
		got = pread(fd, wanted, PIECE, (off_t)(map->offset + at));
		if (got <= 0)
			break;
		if (!memory_read(pid, map->start + at, mapped, (size_t)got))
			piece_count(plan, mapped, wanted, (size_t)got, map->offset + at, out);
	}
}

int leftover_count(pid_t pid, const struct plan *plan, const struct elf_file *file,
		   struct leftover *out)
{
	uint64_t left = LEFTOVER_BYTES_MAX;
	struct process_maps maps;
	struct stat st;
	int err = fstat(elf_file_fd(file), &st) ? -errno : process_maps_read(pid, &maps);

	if (err)
		return err;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (process_map_is_code(map, &st))
			map_count(pid, plan, elf_file_fd(file), map, &left, out);
	}
	process_maps_free(&maps);
	return 0;
}

struct leftover_walk {
	pid_t pid;
	struct leftover *out;
};

static int plan_count(void *context, const struct plan *plan, const struct elf_file *file)
{
	const struct leftover_walk *walk = context;

	leftover_count(walk->pid, plan, file, walk->out);
	return 0;
}

int leftover_process(pid_t pid, const struct plan_target_opts *opts, struct plan_caches *caches,
		     struct leftover *out)
{
	struct leftover_walk walk = {pid, out};
	struct plan_target target;
	int err = plan_target(pid, opts, caches, &target);

	if (err)
		return err;
	plan_target_each(&target, target.runtime.file, plan_count, &walk);
	plan_target_free(&target);
	return 0;
}
