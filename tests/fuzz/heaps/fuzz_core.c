/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of core files on arbitrary bytes: what it says of the maps is in order, and what it
 * reads is in the file. No file of the machine is opened: the folder of mapped files is not there.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proc/core/core_file.h"
#include "runtime/cpython/recover.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define READS 64u

static void core_use(struct core_file *core, size_t size)
{
	uint8_t bytes[5000];

	for (size_t i = 0; i < core->maps.count; i++) {
		const struct process_map *map = &core->maps.entries[i];
		const struct core_content *content = &core->contents[i];

		if (map->start >= map->end || (i && map->start < map[-1].end) || !map->path ||
		    content->stored > content->meant || content->meant > map->end - map->start ||
		    (content->stored && content->at + content->stored > size) ||
		    core_map_find(core, map->start) != i || core_map_find(core, map->end - 1) != i)
			abort();
		if (i >= READS)
			continue;
		core_read(core, map->start, bytes, sizeof(bytes));
		core_read(core, map->end - 8, bytes, 16);
		if (content->stored && core_read(core, map->start, bytes, 1))
			abort();
	}
	core_read(core, UINT64_MAX - 8, bytes, 100);
}

static int read_core(void *context, uint64_t address, void *out, size_t bytes)
{
	return core_read(context, address, out, bytes);
}

static int put_core(void *context, uint64_t address, const char *text)
{
	char found[CORE_TEXT] = "";

	if (core_put(context, address, text))
		abort();
	core_read(context, address, found, sizeof(found));
	return 0;
}

/* The interpreter is sought as without its file. */
static void core_recover(struct core_file *core)
{
	const struct runtime_copy copy = {.maps = &core->maps,
					  .executable = "",
					  .put = put_core,
					  .memory = {read_core, core}};
	struct python_runtime runtime = {0};

	if (!python_copy_recover(&copy, &runtime))
		python_runtime_close(&runtime);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct core_file core;
	int fd = memfd_create("core", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (core_open_fd(&core, fd, "/nothing/is/here")) {
		close(fd);
		return 0;
	}
	core_use(&core, size);
	core_recover(&core);
	core_close(&core);
	return 0;
}
