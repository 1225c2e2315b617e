/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function, file and line of an address and of everything inlined there, from one file's DWARF
 * (libdw).
 *
 * Hostile DWARF can take any amount of time and memory, and libdw was not written for hostile
 * files. Call it only in the worker process (object/symbols/worker.h), which may be killed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define DWARF_INLINE_MAX 63u /* depth of inlining that is reported */

struct dwarf_file;

struct dwarf_frame {
	const char *function; /* mangled for C++ and Rust; NULL: not known */
	/* directory that filename is relative to; NULL: absolute or unknown */
	const char *directory;
	const char *filename; /* NULL: not known */
	uint32_t line;        /* 0: not known */
};

/*
 * alternate_fd: the file of .gnu_debugaltlink, -1 for none. Both stay the caller's and must outlive
 * *out. 0; -ENOENT: no readable DWARF; -ENOEXEC (error_set); -ENOMEM; -errno.
 */
int dwarf_file_open(struct dwarf_file **out, int fd, int alternate_fd);
void dwarf_file_close(struct dwarf_file *file);
/*
 * The frames at an instruction, innermost first, at most capacity; texts are borrowed until the
 * file is closed. Returns their number, 0 if the DWARF does not cover the address; -ENOMEM.
 */
int dwarf_file_frames(struct dwarf_file *file, uint64_t vaddr, struct dwarf_frame frames[],
		      size_t capacity);
