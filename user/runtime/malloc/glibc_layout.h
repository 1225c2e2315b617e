/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs in the structures of glibc's malloc between its versions, on x86-64. Pure, except
 * for glibc_version_read(). The layout of a version is a first guess: glibc.c proves it in the
 * process.
 */
#pragma once

#include <stdint.h>

struct elf_file;

#define GLIBC_BINS      127u /* doubly linked lists of an arena; the first is the unsorted one */
#define GLIBC_FASTBINS  10u
#define GLIBC_HEADER    16u /* in front of the memory that malloc() returns: size before, size */
#define GLIBC_MIN_CHUNK 32u
#define GLIBC_ALIGNMENT 16u

/* The low bits of a chunk's size. */
#define GLIBC_PREV_INUSE     1u
#define GLIBC_IS_MMAPPED     2u
#define GLIBC_NON_MAIN_ARENA 4u
#define GLIBC_SIZE_BITS      7u

struct glibc_layout {
	unsigned int first, last;     /* minor versions of glibc 2 */
	unsigned int fastbins;        /* lists in an arena; 0: it has none */
	unsigned int heap_info_bytes; /* sizeof(heap_info) */
	unsigned int tcache_bins;
	unsigned int mmap_header; /* bytes of its mapping that an mmapped chunk's size leaves out */
	unsigned safe_linking : 1; /* next pointers of singly linked lists are mangled */
	/* the tcache counts what its lists still take, not what they hold */
	unsigned tcache_slots : 1;
	unsigned hp_flags : 1; /* struct malloc_par has hp_flags, which adds padding */
};

/* Offsets in struct malloc_state. */
struct glibc_arena_offsets {
	uint32_t fastbins, top, bins, next, system_mem, bytes;
};

/* NULL: this version is not supported. */
const struct glibc_layout *glibc_layout_for(unsigned int minor);
struct glibc_arena_offsets glibc_arena_offsets(const struct glibc_layout *layout);
/* Of tcache_perthread_struct, with the chunk's header, rounded up. */
uint32_t glibc_tcache_chunk_bytes(const struct glibc_layout *layout);
/*
 * The minor version of a libc.so.6, by the banner that it prints when it is run. 0; -ENOENT: it is
 * no glibc; -ENOEXEC; -ENOMEM.
 */
int glibc_version_read(struct elf_file *file, unsigned int *minor);
