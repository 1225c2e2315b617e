/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a file's functions begin, by .eh_frame (Linux Standard Base, "Exception Frames"): a
 * stripped file has it, too. Linkers sort its addresses into .eh_frame_hdr, which is faster to
 * read, but not in programs that are linked statically.
 */
#ifndef TRACER_ELF_ELF_FRAMES_H
#define TRACER_ELF_ELF_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "elf/elf_file.h"

/*
 * The first addresses of the section's entries, in its order; bytes are the section's, which is at
 * vaddr. Pure. Returns how many there are, of which starts gets the first room. Damaged entries end
 * it.
 */
size_t elf_frames_decode(const uint8_t *bytes, size_t size, uint64_t vaddr, uint64_t *starts,
			 size_t room);

/* Those of the file. 0, *starts is the caller's; -ENOENT it has none; -ENOMEM. */
int elf_frames_starts(struct elf_file *file, uint64_t **starts, size_t *count);

#endif
