/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "object/elf/elf_frames.h"
#include "util/error.h"

#define FIRST_WITH_TASKS 0x030e
#define SECTION          ".AsyncioDebug"
#define MODULE           "/_asyncio." /* of its file's path */
#define NO_DEBUG         "/dev/null"  /* as debug_root: no debug files */

#define SETTER              "set_name"
#define SETTER_TEXTS        4 /* equal texts that are looked at; linkers make one of them */
#define SECTION_MAX         (16u << 20)
#define METHOD_ONE_ARGUMENT 8 /* METH_O */

/* Words of a PyMethodDef. */
enum method_word { METHOD_NAME, METHOD_FUNCTION, METHOD_FLAGS, METHOD_TEXT, METHOD_WORDS };

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

/* The module _asyncio, if it is a file of its own and mapped. 0: the caller closes it; -ENOENT. */
static int module_open(const struct python_runtime *runtime, struct elf_file **file, uint64_t *bias)
{
	struct process_maps maps;
	int err = process_maps_read(runtime->pid, &maps), found = -ENOENT;

	if (err)
		return err;
	for (size_t i = 0; found && i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (!map->executable || !strstr(map->path, MODULE))
			continue;
		int fd = process_map_open(runtime->pid, map);
		if (fd < 0)
			continue;
		if (elf_file_open(file, fd, map->path, NO_DEBUG)) {
			close(fd);
			continue;
		}
		found = elf_file_bias(*file, map->start, map->offset, bias);
		if (found)
			elf_file_close(*file);
	}
	process_maps_free(&maps);
	return found;
}

/* The same of the module. */
static int module_apply(struct python_runtime *runtime)
{
	struct elf_file *file;
	uint64_t bias;
	int err = module_open(runtime, &file, &bias);

	if (err)
		return err;
	err = file_apply(file, runtime);
	elf_file_close(file);
	return err;
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

	if (known->version < FIRST_WITH_TASKS)
		return error_set(-ENOTSUP,
				 "CPython %u.%u does not tell which asyncio task runs, as 3.14 and "
				 "later do (--by task)",
				 known->version >> 8, known->version & 255);
	if (known->build == BUILD_FREE_THREADED)
		return error_set(-ENOTSUP, "it is a free-threaded build: which asyncio task runs "
					   "(--by task) is known of builds with the GIL only");
	int err = file_apply(runtime->file, runtime);
	if (err == -ENOENT)
		err = module_apply(runtime);
	if (err == -ENOENT)
		err = 0; /* the table's are in target.offsets */
	return err ?: types_find(runtime);
}

int tasks_setter_scan(const struct tasks_data *data, uint64_t *function)
{
	uint64_t entry[METHOD_WORDS], texts[SETTER_TEXTS], found = 0;
	size_t count = 0;

	for (size_t i = 0; i + sizeof(SETTER) <= data->text_bytes && count < SETTER_TEXTS; i++)
		if (!memcmp(data->text + i, SETTER, sizeof(SETTER)))
			texts[count++] = data->text_address + i;
	for (size_t i = 0; count && i + sizeof(entry) <= data->bytes; i += 8) {
		size_t text = 0;

		memcpy(entry, data->content + i, sizeof(entry));
		while (text < count && texts[text] != entry[METHOD_NAME])
			text++;
		if (text == count || (uint32_t)entry[METHOD_FLAGS] != METHOD_ONE_ARGUMENT)
			continue;
		if (found && found != entry[METHOD_FUNCTION])
			return -ENOENT;
		found = entry[METHOD_FUNCTION];
	}
	*function = found;
	return found ? 0 : -ENOENT;
}

/* Reads a section: of the file, or of the process where it is not 0. NULL: it cannot be read. */
static uint8_t *section_read(struct elf_file *file, const struct python_runtime *process,
			     uint64_t bias, const char *name, uint64_t *address, size_t *bytes)
{
	uint64_t vaddr, size;

	if (elf_file_section(file, name, &vaddr, &size) || size > SECTION_MAX)
		return NULL;
	uint8_t *content = malloc(size + 1);
	if (!content)
		return NULL;
	int failed = process ? runtime_read(process, vaddr + bias, content, size)
			     : elf_file_read(file, vaddr, content, size) != (int)size;
	if (failed) {
		free(content);
		return NULL;
	}
	*address = vaddr + bias;
	*bytes = size;
	return content;
}

/*
 * The process can write what it likes into its table of methods, and others may map the file: a
 * breakpoint within an instruction would change what they do. 0; -ENOENT: no function begins there.
 */
static int start_check(struct elf_file *file, uint64_t vaddr)
{
	uint64_t *starts;
	size_t count;
	int err = elf_frames_starts(file, &starts, &count), found = -ENOENT;

	if (err)
		return err;
	for (size_t i = 0; found && i < count; i++)
		found = starts[i] == vaddr ? 0 : -ENOENT;
	free(starts);
	return found;
}

static int setter_find(const struct python_runtime *runtime, struct elf_file *file, uint64_t bias,
		       uint64_t *vaddr)
{
	struct tasks_data data = {0};
	uint8_t *text =
		section_read(file, NULL, bias, ".rodata", &data.text_address, &data.text_bytes);
	uint64_t ignored, offset;
	uint8_t *content = section_read(file, runtime, bias, ".data", &ignored, &data.bytes);
	int err = -ENOENT;

	data.text = text;
	data.content = content;
	if (text && content)
		err = tasks_setter_scan(&data, vaddr);
	free(text);
	free(content);
	if (err)
		return err;
	*vaddr -= bias;
	return start_check(file, *vaddr) ?: elf_file_offset(file, *vaddr, &offset);
}

int tasks_setter_find(const struct python_runtime *runtime, struct elf_file **file, uint64_t *vaddr)
{
	uint64_t bias = runtime->bias, at, size;
	int err = 0;

	if (elf_file_section(runtime->file, SECTION, &at, &size))
		err = module_open(runtime, file, &bias);
	else
		*file = elf_file_share(runtime->file);
	if (err)
		return err;
	err = setter_find(runtime, *file, bias, vaddr);
	if (err)
		elf_file_close(*file);
	return err;
}
