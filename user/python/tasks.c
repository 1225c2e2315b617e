/* SPDX-License-Identifier: Apache-2.0 */
#include "python/tasks.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define FIRST_WITH_TASKS 0x030e
#define SECTION          ".AsyncioDebug"
#define MODULE           "/_asyncio." /* of its file's path */
#define NO_DEBUG         "/dev/null"  /* as debug_root: no debug files */

int tasks_apply(const uint8_t *bytes, size_t size, const struct python_offsets *known,
		struct abi_offsets *abi)
{
	uint64_t words[TASKS_WORDS], name, task;

	if (size != sizeof(words))
		return error_set(-ENOTSUP, "its asyncio has debug offsets of %zu bytes, not %zu",
				 size, sizeof(words));
	memcpy(words, bytes, sizeof(words));
	name = words[TASKS_TASK_NAME];
	task = words[TASKS_THREAD_TASK];
	/* That the sizes agree shows that the words are where they are looked for. */
	if (words[TASKS_THREAD_SIZE] != known->objects.tstate_bytes ||
	    words[TASKS_TASK_SIZE] > UINT16_MAX || name % 8 || !name ||
	    name >= words[TASKS_TASK_SIZE] || task % 8 || !task ||
	    task >= words[TASKS_THREAD_SIZE] || task > UINT16_MAX)
		return error_set(-ENOTSUP, "its asyncio's debug offsets are not those of its "
					   "version");
	abi->task_name = (uint16_t)name;
	abi->tstate_task = (uint16_t)task;
	return 0;
}

/* 0; -ENOENT: the file has no such section; -ENOTSUP. */
static int file_apply(struct elf_file *file, struct python_runtime *runtime)
{
	uint8_t bytes[8 * TASKS_WORDS];
	uint64_t vaddr, size;
	int err = elf_file_section(file, SECTION, &vaddr, &size);

	if (err)
		return err;
	if (size == sizeof(bytes) &&
	    elf_file_read(file, vaddr, bytes, sizeof(bytes)) != (int)sizeof(bytes))
		return error_set(-ENOTSUP, "its asyncio's debug offsets cannot be read");
	return tasks_apply(bytes, size, runtime->offsets, &runtime->target.offsets);
}

/* The same of the module, if it is a file of its own and mapped. */
static int module_apply(struct python_runtime *runtime)
{
	struct process_maps maps;
	int err = process_maps_read(runtime->pid, &maps), found = -ENOENT;

	if (err)
		return err;
	for (size_t i = 0; found == -ENOENT && i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];
		struct elf_file *file;
		int fd;

		if (!map->executable || !strstr(map->path, MODULE))
			continue;
		fd = process_map_open(runtime->pid, map);
		if (fd < 0)
			continue;
		if (elf_file_open(&file, fd, map->path, NO_DEBUG)) {
			close(fd);
			continue;
		}
		found = file_apply(file, runtime);
		elf_file_close(file);
	}
	process_maps_free(&maps);
	return found;
}

static int types_find(struct python_runtime *runtime)
{
	struct abi_target *target = &runtime->target;
	struct elf_symbol number, text;

	if (elf_file_symbol(runtime->file, "PyLong_Type", &number) ||
	    elf_file_symbol(runtime->file, "PyUnicode_Type", &text))
		return error_set(-ENOTSUP, "its file does not tell where the types of a task's "
					   "name are");
	target->long_type = number.vaddr + runtime->bias;
	target->unicode_type = text.vaddr + runtime->bias;
	return 0;
}

int tasks_find(struct python_runtime *runtime)
{
	const struct python_offsets *known = runtime->offsets;
	int err;

	if (known->version < FIRST_WITH_TASKS)
		return error_set(-ENOTSUP,
				 "CPython %u.%u does not tell which asyncio task runs, as 3.14 and "
				 "later do (--by task)",
				 known->version >> 8, known->version & 255);
	if (known->build == BUILD_FREE_THREADED)
		return error_set(-ENOTSUP, "it is a free-threaded build: which asyncio task runs "
					   "(--by task) is known of builds with the GIL only");
	err = file_apply(runtime->file, runtime);
	if (err == -ENOENT)
		err = module_apply(runtime);
	if (err == -ENOENT)
		err = 0; /* the table's are in target.offsets */
	return err ? err : types_find(runtime);
}
