/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of a file's .eh_frame (Linux Standard Base, "Exception Frames"), which stripped files
 * have too: where its functions are, and how their frames are unwound. Linkers sort the start
 * addresses into .eh_frame_hdr, which is faster to read but missing in statically linked programs.
 * Programs that are compiled without it may have .debug_frame (DWARF 5, 6.4.1), which is nearly the
 * same.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "object/elf/elf_file.h"
#include "util/elf_reader.h"

/* What several entries have in common (CIE). */
struct elf_frame_common {
	uint8_t encoding;       /* of addresses in its entries */
	unsigned signal : 1;    /* its functions are returned to from the handlers of signals */
	unsigned augmented : 1; /* its entries have augmentation data */
	uint64_t code_align;
	int64_t data_align;
	uint64_t return_register; /* column of the return address */
	size_t code, code_end;    /* its instructions, as offsets in the section */
};

/* One function (FDE). */
struct elf_frame {
	uint64_t vaddr, bytes;
	struct elf_frame_common common;
	size_t code, code_end;
};

/* Where reading is. Set bytes, size and vaddr of the section, and is_debug, the rest to 0. */
struct elf_frames_cursor {
	const uint8_t *bytes;
	size_t size;
	uint64_t vaddr;
	int is_debug; /* it is .debug_frame */
	size_t at;
	size_t common_at; /* of the entry that common is of; 0: none yet */
	struct elf_frame_common common;
};

/*
 * Decodes the next entry that has a known address, in section order. 1; 0: there is none. A damaged
 * entry ends the section. Pure.
 */
int elf_frames_next(struct elf_frames_cursor *cursor, struct elf_frame *out);
/*
 * Reads an address of a section that is at vaddr; 0: none, or an encoding that no linker for x86-64
 * uses.
 */
uint64_t elf_frames_address(struct elf_reader *reader, uint8_t encoding, uint64_t vaddr);

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
