/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/elf/elf_frames.h"
#include "runtime/cpython/namespace.h"
#include "util/array.h"
#include "util/error.h"
#include "util/word.h"

#define FIRST_WITH_TASKS 0x030e
#define SECTION          ".AsyncioDebug"
#define MODULE           "/_asyncio." /* of its file's path */

#define SETTER              "set_name"
#define SETTER_TEXTS        4 /* equal texts that are looked at; linkers make one of them */
#define SECTION_MAX         (16u << 20)
#define METHOD_ONE_ARGUMENT 8 /* METH_O */

#define RUNNING_LOOP   "__asyncio_running_event_loop__"
#define NAMES_MAX      64u    /* of a code object */
#define DICT_WITHIN    256u   /* where a PyThreadState has its dict */
#define FIRST_UNHELD   0x030c /* of the versions whose dict has the loop itself */
#define FIRST_IN_STATE 0x030d /* of those whose thread's state has it */
#define STATE_WITHIN   384u   /* of it, where that is looked for */
#define LIST_BEHIND    16u
#define HELD_LOOP      16u /* PyRunningLoopHolder.rl_loop */
#define TYPE_BASICSIZE 24u /* behind the type's own header and its name */

/* TaskObj of the versions before 3.14, which only the DWARF of _asyncio has. */
static const struct task_layout {
	uint16_t version, bytes, name;
} task_layouts[] = {{0x0308, 144, 120}, {0x0309, 184, 160}, {0x030a, 192, 168},
		    {0x030b, 176, 144}, {0x030c, 176, 144}, {0x030d, 144, 128}};

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

/* The same of the module. */
static int module_apply(struct python_runtime *runtime)
{
	struct elf_file *file;
	uint64_t bias;
	int err = namespace_file_open(runtime, MODULE, &file, &bias);

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

static const struct task_layout *task_layout(const struct python_runtime *runtime)
{
	for (size_t i = 0; i < ARRAY_SIZE(task_layouts); i++)
		if (task_layouts[i].version == runtime->offsets->version)
			return &task_layouts[i];
	return NULL;
}

int tasks_find(struct python_runtime *runtime)
{
	const struct python_offsets *known = runtime->offsets;
	const struct task_layout *layout = task_layout(runtime);

	if (known->build == BUILD_FREE_THREADED)
		return error_set(-ENOTSUP, "it is a free-threaded build: which asyncio task runs "
					   "(--by task) is known of builds with the GIL only");
	if (known->version < FIRST_WITH_TASKS && !layout)
		return error_set(-ENOTSUP, "where CPython %u.%u has its asyncio tasks is not known",
				 known->version >> 8, known->version & 255);
	if (layout) {
		runtime->target.offsets.task_name = layout->name;
		return types_find(runtime);
	}
	int err = file_apply(runtime->file, runtime);
	if (err == -ENOENT)
		err = module_apply(runtime);
	if (err == -ENOENT)
		err = 0; /* the table's are in target.offsets */
	return err ?: types_find(runtime);
}

/* --- before 3.14 ------------------------------------------------------------------------------ */

/*
 * Where a thread's state has its loop: releases differ by a word, but two words behind it there is
 * the head of a list, which is empty and the only one: it refers to itself twice. 0; -ENOENT.
 */
static int loop_look(const struct python_runtime *runtime, uint64_t tstate, uint16_t *offset)
{
	uint8_t words[STATE_WITHIN];
	size_t found = 0;

	if (runtime_read(runtime, tstate, words, sizeof(words)))
		return -ENOENT;
	for (uint16_t at = LIST_BEHIND; at + 16u <= sizeof(words); at += 8) {
		if (u64_at(words + at) != tstate + at || u64_at(words + at + 8) != tstate + at)
			continue;
		*offset = at - LIST_BEHIND;
		found++;
	}
	return found == 1 ? 0 : -ENOENT;
}

/*
 * Where a thread's state has its loop, or its dict, and the key of the loop in that. Versions
 * differ in where the dict is: it is known by the key. 0; -ENOENT.
 */
static int thread_look(const struct python_runtime *runtime, uint64_t tstate,
		       struct abi_label *label)
{
	uint8_t words[DICT_WITHIN];
	struct module_item item;

	if (runtime->offsets->version >= FIRST_IN_STATE)
		return loop_look(runtime, tstate, &label->tstate_dict);
	if (runtime_read(runtime, tstate, words, sizeof(words)))
		return -ENOENT;
	for (uint16_t at = 0; at < sizeof(words); at += 8) {
		uint64_t dict = u64_at(words + at);

		if (dict < 4096 || dict & 7 ||
		    namespace_dict_find(runtime, dict, RUNNING_LOOP, &item))
			continue;
		label->tstate_dict = at;
		label->names[0] = item.key;
		return 0;
	}
	return -ENOENT;
}

static int threads_look(const struct python_runtime *runtime, struct abi_label *label)
{
	uint64_t tstate = namespace_threads(runtime);
	int err = 0;

	for (uint32_t i = 0; !err && tstate && i < NAMESPACE_THREADS; i++) {
		if (!thread_look(runtime, tstate, label))
			return 0;
		err = runtime_read_u64(runtime, tstate + runtime->target.offsets.tstate_next,
				       &tstate);
	}
	if (runtime->offsets->version >= FIRST_IN_STATE)
		return error_set(-ENOTSUP, "its threads do not have their event loops where its "
					   "version has them (--by task)");
	return error_set(-EAGAIN, "no asyncio event loop has run in it yet");
}

/* Whether its tasks are those of which the layout is known. */
static int task_type_check(const struct python_runtime *runtime, uint64_t module)
{
	const struct task_layout *layout = task_layout(runtime);
	struct module_item type;
	uint64_t bytes = 0;

	if (!layout || namespace_dict_find(runtime, module, "Task", &type) ||
	    runtime_read_u64(runtime,
			     type.value + runtime->target.offsets.object_type + TYPE_BASICSIZE,
			     &bytes) ||
	    bytes != layout->bytes)
		return error_set(-ENOTSUP,
				 "its asyncio.Task has %llu bytes, which is none that is "
				 "known of its version (--by task)",
				 (unsigned long long)bytes);
	return 0;
}

/*
 * The interned name of the attribute in which tasks in Python have theirs, from the code of their
 * get_name(); 0: not found.
 */
static uint64_t attribute_find(const struct python_runtime *runtime, uint64_t module)
{
	const struct object_offsets *at = &runtime->offsets->objects;
	struct module_item item;
	uint64_t word, count, name;

	if (namespace_dict_find(runtime, module, "_PyTask", &item) ||
	    runtime_read_u64(runtime, item.value + at->type_dict, &word) ||
	    namespace_dict_find(runtime, word, "get_name", &item) ||
	    runtime_read_u64(runtime, item.value + at->function_code, &word) ||
	    runtime_read_u64(runtime, word + at->code_names, &word) ||
	    runtime_read_u64(runtime, word + runtime->target.offsets.bytes_size, &count))
		return 0;
	for (uint64_t i = 0; i < count && i < NAMES_MAX; i++)
		if (!runtime_read_u64(runtime, word + at->tuple_items + 8 * i, &name) &&
		    namespace_is_text(runtime, name, "_name"))
			return name;
	return 0;
}

int tasks_place(const struct python_runtime *runtime, struct abi_label *label)
{
	static const char *const names[] = {"_asyncio", "asyncio.tasks"};
	uint64_t dicts[ARRAY_SIZE(names)] = {0}, dict_type = 0, type = 0;
	struct module_item tasks;
	int err = namespace_type(runtime, "PyDict_Type", &dict_type)
			  ?: namespace_modules(runtime, names, ARRAY_SIZE(names), dicts);

	if (err == -ENOENT || (!err && !dicts[0] && !dicts[1]))
		return error_set(-EAGAIN, "it has not imported asyncio yet");
	if (err)
		return err;
	/* asyncio.tasks imports it before it has tasks of its own. */
	if (!dicts[0])
		return error_set(-ENOTSUP, "its asyncio has no module _asyncio, which has the "
					   "running tasks (--by task)");
	if (namespace_dict_find(runtime, dicts[0], "_current_tasks", &tasks) ||
	    runtime_read_u64(runtime, tasks.value + runtime->target.offsets.object_type, &type) ||
	    type != dict_type)
		return error_set(-EAGAIN, "its module _asyncio has no running tasks yet");
	label->variable = tasks.value;
	label->names[1] = attribute_find(runtime, dicts[1]);
	if (!label->names[1])
		return error_set(-EAGAIN, "it has not imported asyncio yet");
	label->loop_held = runtime->offsets->version < FIRST_UNHELD ? HELD_LOOP : 0;
	return task_type_check(runtime, dicts[0]) ?: threads_look(runtime, label);
}

/* --- Task.set_name() -------------------------------------------------------------------------- */

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
		err = namespace_file_open(runtime, MODULE, file, &bias);
	else
		*file = elf_file_share(runtime->file);
	if (err)
		return err;
	err = setter_find(runtime, *file, bias, vaddr);
	if (err)
		elf_file_close(*file);
	return err;
}
