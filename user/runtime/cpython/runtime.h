/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the CPython runtime in a process: the file that contains it, its version, and where the
 * thread states are. It reads /proc and the target's ELF file, and runs nothing in the target.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "object/elf/elf_file.h"
#include "proc/memory.h"
#include "proc/process.h"
#include "runtime/cpython/offsets.h"
#include "runtime/cpython/runtime_files.h"

#define RUNTIME_OTHER_BYTES 128 /* longer paths are cut */

/* A copy of a process that is not there any more: what a core file has. */
struct runtime_copy {
	const struct process_maps *maps; /* each file has an inode number of its own */
	const char *executable;          /* its path; "": not known */
	int (*open)(void *context, const struct process_map *map); /* as process_map_open() */
	/*
	 * Adds a text to memory that the copy does not have; reading the rest of its page gives
	 * zeros then. 0, -ENOMEM.
	 */
	int (*put)(void *context, uint64_t address, const char *text);
	struct memory_reader memory; /* also the context of open() and put() */
};

/* Addresses that a file would tell, found in a copy without it (user/runtime/cpython/). */
struct runtime_found {
	uint64_t type_type, data, data_bytes;
	uint64_t arenas, maxarenas; /* variables of pymalloc, up to 3.11 */
};

struct python_runtime {
	pid_t pid;
	const struct runtime_copy *copy; /* what is read instead of the process; NULL: none */
	/* its memory; owned. NULL: a copy. A member of a session without Python has it, too. */
	struct space *space;
	/* the executable or libpython that holds the runtime; owned. NULL: `found` is known */
	struct elf_file *file;
	struct runtime_found found;
	uint64_t bias; /* address in the target = vaddr in the file + bias */
	/* PY_VERSION_HEX; the lower 16 bits are 0 if only the minor version is known */
	uint32_t version_hex;
	/* a copy or a table entry; valid as long as the runtime */
	const struct python_offsets *offsets;
	struct abi_target target; /* ready for BPF except nframe and space_id */
	unsigned static_exe : 1;  /* linked into the executable */
	/* file of another runtime that may also run in the process; "": none */
	char other[RUNTIME_OTHER_BYTES];
};

/*
 * Searches the executable and the mapped files for one that defines _PyRuntime. Of two (an
 * executable and a libpython, or two libpythons) the one that has an interpreter and is supported
 * is chosen. The process may be at its first instruction: its memory need not be initialised (GOT
 * slots may be unrelocated; the DTV is then used only if the module id is known). files, if not
 * NULL, caches what is known of files. 0; -ENOENT: no Python runtime in this process; -ENOTSUP:
 * recognised but not supported (a version not in the table, a debug build of an unknown one, PyPy:
 * error_set says which, what is known and the remedy); -ENOEXEC; -ESRCH; -EPERM.
 */
int python_runtime_find(pid_t pid, struct runtime_files *files, struct python_runtime *out);
/*
 * The same for a process that will be traced or read; fills *info, too, and verifies the layout
 * (layout.h). swap_in: as space_swap_in(), of out->space from now on. Also as
 * process_info_check(); -ENODATA: what had to be read is swapped out.
 */
int python_process_find(pid_t pid, struct runtime_files *files, int swap_in,
			struct process_info *info, struct python_runtime *out);
/* The same for a copy, which is borrowed until the runtime is closed. */
int python_copy_find(const struct runtime_copy *copy, struct python_runtime *out);
/* As space_read(), of the runtime's process or its copy. */
int runtime_read(const struct python_runtime *runtime, uint64_t address, void *out, size_t bytes);
int runtime_read_u64(const struct python_runtime *runtime, uint64_t address, uint64_t *out);
/*
 * The address of PyType_Type, by which objects are recognised. 0; -ENOTSUP: its file has no such
 * symbol (error_set); -errno.
 */
int runtime_type_type(const struct python_runtime *runtime, uint64_t *address);
/* .data and .bss of the interpreter's file; unchanged if it has no .data. */
void runtime_data(const struct python_runtime *runtime, uint64_t *address, uint64_t *bytes);
/*
 * The runtime of a forked child, which has the same addresses as its parent's, and its memory
 * (NULL if it has ended already). 0, -ENOMEM; the caller closes it.
 */
int python_runtime_inherit(const struct python_runtime *parent, pid_t pid,
			   struct python_runtime *out);
void python_runtime_close(struct python_runtime *runtime);
