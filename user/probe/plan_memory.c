/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/plan_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "probe/plan_symbol.h"
#include "target/process.h"

#define NO_DEBUG "/dev/null" /* what is looked for is exported */

static const struct plan_wish wishes[] = {
	{"munmap", ABI_OP_MUNMAP, EVENT_API_RAW, {ABI_REG_DI, ABI_REG_SI, ABI_REG_COUNT}, 0},
	{"mremap", ABI_OP_MREMAP, EVENT_API_RAW, {ABI_REG_DI, ABI_REG_SI, ABI_REG_DX}, 1},
	{"mprotect", ABI_OP_MPROTECT, EVENT_API_RAW, {ABI_REG_DI, ABI_REG_SI, ABI_REG_DX}, 1},
	{"brk", ABI_OP_BRK, EVENT_API_RAW, {ABI_REG_COUNT, ABI_REG_COUNT, ABI_REG_COUNT}, 1},
	{"mmap", ABI_OP_MMAP, EVENT_API_RAW, {ABI_REG_SI, ABI_REG_DX, ABI_REG_CX}, 1},
};

#define WISHES (sizeof(wishes) / sizeof(wishes[0]))

int plan_memory(struct elf_file *libc, struct plan *out)
{
	struct plan plan = {.mode = EVENT_MODE_GROWTH, .room = WISHES};
	int err = 0;

	plan.sites = calloc(plan.room, sizeof(*plan.sites));
	plan.missing = calloc(PLAN_MAX_ENTRIES, sizeof(*plan.missing));
	if (!plan.sites || !plan.missing)
		err = -ENOMEM;
	for (size_t i = 0; i < WISHES && !err; i++)
		err = plan_wish_add(&plan, libc, &wishes[i]);
	/* Some of them without the others would tell of memory that is long gone. */
	if (!err && plan.missing_count)
		err = error_set(-ENOENT, "%s of %s: %s", plan.missing[0].symbol, elf_file_path(libc),
				plan.missing[0].why);
	if (err)
		plan_free(&plan);
	else
		*out = plan;
	return err;
}

/* "libc.so.6", "libc-2.31.so", "ld-musl-x86_64.so.1": the C library, by its file's name. */
static int is_libc(const struct process_map *map)
{
	const char *slash = strrchr(map->path, '/');

	return map->executable && map->inode && slash &&
	       (!strncmp(slash, "/libc.so", strlen("/libc.so")) ||
		!strncmp(slash, "/libc-2.", strlen("/libc-2.")) ||
		!strncmp(slash, "/ld-musl-", strlen("/ld-musl-")));
}

int plan_memory_process(pid_t pid, struct elf_file **libc, struct plan *out)
{
	const struct process_map *map = NULL;
	struct elf_file *file = NULL;
	struct process_maps maps;
	int err = process_maps_read(pid, &maps);

	if (err)
		return err;
	for (size_t i = 0; i < maps.count && !map; i++)
		if (is_libc(&maps.entries[i]))
			map = &maps.entries[i];
	if (!map) {
		err = error_set(-ENOENT, "it has mapped no C library");
	} else {
		int fd = process_map_open(pid, map);

		err = fd < 0 ? fd : elf_file_open(&file, fd, map->path, NO_DEBUG);
		if (err && fd >= 0)
			close(fd);
	}
	if (!err)
		err = plan_memory(file, out);
	if (err)
		elf_file_close(file);
	else
		*libc = file;
	process_maps_free(&maps);
	return err;
}
