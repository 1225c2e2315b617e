/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function, file and line of an address, and of all that is inlined there, from one file's DWARF
 * (libdw).
 *
 * DWARF can be made to cost any time and memory, and libdw was not written for hostile files: this
 * is called in the worker process alone (symbols/worker.h), which may be killed.
 */
#ifndef TRACER_SYMBOLS_DWARF_H
#define TRACER_SYMBOLS_DWARF_H

#include <stddef.h>
#include <stdint.h>

#define DWARF_INLINE_MAX 63u /* functions inlined into one another that are told */

struct dwarf_file;

struct dwarf_frame {
	const char *function; /* mangled, where it is a name of C++ or Rust; NULL: not known */
	/* that filename is relative to; NULL: it is not, or to none that is known */
	const char *directory;
	const char *filename; /* NULL: not known */
	uint32_t line;        /* 0: not known */
};

/*
 * alternate_fd: the file of .gnu_debugaltlink, -1 for none. Both stay the caller's and must outlive
 * *out. 0; -ENOENT no DWARF that can be read; -ENOEXEC (error_set); -ENOMEM; -errno.
 */
int dwarf_file_open(struct dwarf_file **out, int fd, int alternate_fd);
void dwarf_file_close(struct dwarf_file *file);
/*
 * The frames at an instruction, innermost first, at most room of them; texts are borrowed until the
 * file is closed. Their number, 0 when DWARF does not know the address; -ENOMEM.
 */
int dwarf_file_frames(struct dwarf_file *file, uint64_t vaddr, struct dwarf_frame frames[],
		      size_t room);

#endif
