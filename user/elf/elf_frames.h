/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start addresses of a file's functions, from .eh_frame (Linux Standard Base, "Exception Frames"),
 * which stripped files have too. Linkers sort these addresses into .eh_frame_hdr, which is faster
 * to read but missing in statically linked programs.
 */
#ifndef TRACER_ELF_ELF_FRAMES_H
#define TRACER_ELF_ELF_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "elf/elf_file.h"

/*
 * Decodes the start address of each entry of the section, in section order. bytes is the content of
 * the section, which is at vaddr. Pure. Returns the number of entries; starts gets the first
 * capacity of them. A damaged entry ends the decoding.
 */
size_t elf_frames_decode(const uint8_t *bytes, size_t size, uint64_t vaddr, uint64_t *starts,
			 size_t capacity);

/*
 * The start addresses of a file. 0: the caller frees *starts; -ENOENT: the file has none; -ENOMEM.
 */
int elf_frames_starts(struct elf_file *file, uint64_t **starts, size_t *count);

#endif
