/* SPDX-License-Identifier: Apache-2.0 */
/* Where main_arena and struct malloc_par are among bytes of libc's data. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/malloc/glibc_layout.h"

/*
 * An arena's bins are heads of circular lists: a list without chunks points to its head, any other
 * word is the address of a chunk. bytes were copied from address. *arena: the address of the only
 * structure of this form. 0; -ENOENT: there is none; -EEXIST: there are several.
 */
int glibc_find_arena(const struct glibc_layout *layout, const uint8_t *bytes, size_t size,
		     uint64_t address, uint64_t *arena);
/*
 * The address of mp_.sbrk_base: a word in [heap_start, heap_start + a page) among counts that agree
 * with each other. 0; -ENOENT; -EEXIST.
 */
int glibc_find_parameters(const struct glibc_layout *layout, const uint8_t *bytes, size_t size,
			  uint64_t address, uint64_t heap_start, uint64_t *sbrk_base);
/* Offsets before sbrk_base in struct malloc_par. */
#define GLIBC_PARAMETERS_BEFORE 40u
uint32_t glibc_mmaps_count_before(const struct glibc_layout *layout);
#define GLIBC_MMAPS_BYTES_BEFORE 16u
