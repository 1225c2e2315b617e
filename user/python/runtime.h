/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPython runtime inside a process: which file holds it, which version it is, and where the
 * thread states are. Finding it reads /proc and the target's ELF file, never runs anything of the
 * target's.
 */
#ifndef TRACER_PYTHON_RUNTIME_H
#define TRACER_PYTHON_RUNTIME_H

#include <stdint.h>
#include <sys/types.h>

#include "elf/elf_file.h"
#include "process/process.h"
#include "python/offsets.h"
#include "python/runtime_files.h"

#define RUNTIME_OTHER_BYTES 128 /* what is longer is cut */

struct python_runtime {
	pid_t pid;
	struct elf_file *file; /* the executable or libpython that holds the runtime; owned */
	uint64_t bias;         /* address in the target = vaddr in the file + bias */
	uint32_t
		/* PY_VERSION_HEX; the lower 16 bits are 0 when only the minor version is known */
		version_hex;
	/* a copy or a table entry; valid as long as the runtime */
	const struct python_offsets *offsets;
	struct abi_target target; /* ready for BPF but for nframe and space */
	unsigned static_exe : 1;  /* linked into the executable */
	/* file of another runtime that may run in it, too; "": none */
	char other[RUNTIME_OTHER_BYTES];
};

/*
 * Looks through the executable and the mapped files for one that defines _PyRuntime. Of two of them
 * (an executable and a libpython, or two libpythons) it is the one that has an interpreter and is
 * supported. The process may be at its very first instruction: nothing of its memory need be
 * initialised (GOT slots may be unrelocated: the DTV way is then chosen only if the module id can
 * be known). files, if not NULL, spares looking into files again. 0; -ENOENT no Python runtime in
 * this process; -ENOTSUP recognised but not supported (a version not in the table, a free-threaded
 * or debug build, PyPy: error_set says which, what is known and the remedy); -ENOEXEC; -ESRCH;
 * -EPERM.
 */
int python_runtime_find(pid_t pid, struct runtime_files *files, struct python_runtime *out);
/*
 * The same of a process that is to be traced or read, and what it is. Its layout is proven
 * (layout.h). Also -EINVAL: pid is one of its threads; -ENOTSUP a kernel thread; -ESRCH a zombie.
 */
int python_process_find(pid_t pid, struct runtime_files *files, struct process_info *info,
			struct python_runtime *out);
/*
 * Of a child that was forked: all of it is where it is in its parent. 0, -ENOMEM; the caller closes
 * it.
 */
int python_runtime_inherit(const struct python_runtime *parent, pid_t pid,
			   struct python_runtime *out);
void python_runtime_close(struct python_runtime *runtime);

#endif
