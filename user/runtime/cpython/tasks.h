/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a thread keeps its running asyncio task, and a task its name. CPython 3.14 and later
 * publish it for debuggers, as Py_AsyncioModuleDebugOffsets (Modules/_asynciomodule.c) in the
 * section .AsyncioDebug of _asyncio: of its own file, or of the interpreter's where it is built in.
 *
 * Before 3.14 the task is in _asyncio._current_tasks, a dict {event loop: task}, and the thread's
 * running loop in its PyThreadState (3.13), or in the dict that this has. Both are found in the
 * process; the dict once a loop has run in it.
 */
#pragma once

#include "abi/label.h"
#include "runtime/cpython/runtime.h"

/* Words of Py_AsyncioModuleDebugOffsets, each of 8 bytes, the same in 3.14 and 3.15. */
enum tasks_word {
	TASKS_TASK_SIZE,
	TASKS_TASK_NAME,
	TASKS_THREAD_SIZE = 9,
	TASKS_THREAD_TASK = 11,
	TASKS_WORDS = 13
};

/*
 * Applies the section's bytes to *abi, where `known` are the offsets of the runtime. 0; -ENOTSUP:
 * they are not of this build, or damaged (error_set).
 */
int tasks_apply(const uint8_t *bytes, size_t size, const struct python_offsets *known,
		struct abi_offsets *abi);
/*
 * Sets runtime->target so that BPF tells tasks (bpf/python/task.h). If the process has not loaded
 * _asyncio yet, the version's known offsets are used. Before 3.14 tstate_task is 0 and a label is
 * needed, too: tasks_place(). 0; -ENOTSUP: its build does not tell, or it is none that is known
 * (error_set); -ESRCH, -EPERM, -ENOMEM.
 */
int tasks_find(struct python_runtime *runtime);
/*
 * Before 3.14: sets what a label has of ABI_LABEL_TASK. 0; -EAGAIN: no event loop has run in the
 * process yet (error_set); -ENOTSUP: its asyncio is none that is known (error_set); -ENOMEM.
 */
int tasks_place(const struct python_runtime *runtime, struct abi_label *label);

/* Of a file with methods: its texts, and its variables as they are in a process. */
struct tasks_data {
	const uint8_t *text, *content;
	size_t text_bytes, bytes;
	uint64_t text_address; /* in the process */
};

/*
 * The address of the function that the table of methods has for set_name(). Pure. 0; -ENOENT: there
 * is none, or there are several.
 */
int tasks_setter_scan(const struct tasks_data *data, uint64_t *function);
/*
 * The same of asyncio's tasks, as vaddr in the file, if the process has loaded _asyncio. 0: the
 * caller closes the file; -ENOENT; -errno.
 */
int tasks_setter_find(const struct python_runtime *runtime, struct elf_file **file,
		      uint64_t *vaddr);
