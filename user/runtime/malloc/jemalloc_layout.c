/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/jemalloc_layout.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/array.h"
#include "util/word.h"

#define ADDRESS_END (1ull << JEMALLOC_ADDRESS_BITS)
#define PAGE        JEMALLOC_PAGE
#define PAGE_SHIFT  12

/*
 * What differs is the version, and how many bits of an address its configure found that the
 * processor has: 48, or 57, for which the element of a page does not fit in one word. Neither
 * profiling, statistics, debugging nor the sizes of blocks change these structures (compared in
 * the DWARF of builds).
 */
static const struct jemalloc_layout layouts[] = {
	{.minor = 3,
	 .levels = 2,
	 .index_bits = 18,
	 .element_bytes = 8,
	 .state_shift = 17,
	 .state_bits = 3,
	 .size_shift = 20,
	 .free_shift = 28},
	{.minor = 3,
	 .levels = 3,
	 .index_bits = 15,
	 .element_bytes = 16,
	 .state_shift = 17,
	 .state_bits = 3,
	 .size_shift = 20,
	 .free_shift = 28},
	{.minor = 2,
	 .levels = 2,
	 .index_bits = 18,
	 .element_bytes = 8,
	 .state_shift = 16,
	 .state_bits = 2,
	 .size_shift = 18,
	 .free_shift = 26},
	{.minor = 2,
	 .levels = 3,
	 .index_bits = 15,
	 .element_bytes = 16,
	 .state_shift = 16,
	 .state_bits = 2,
	 .size_shift = 18,
	 .free_shift = 26},
};

const struct jemalloc_layout *jemalloc_layout_at(size_t index)
{
	return index < ARRAY_SIZE(layouts) ? &layouts[index] : NULL;
}

uint64_t jemalloc_table_bytes(const struct jemalloc_layout *layout, unsigned int level)
{
	return (level == layout->levels - 1 ? layout->element_bytes : 8ull) << layout->index_bits;
}

unsigned int jemalloc_table_shift(const struct jemalloc_layout *layout, unsigned int level)
{
	return PAGE_SHIFT + (layout->levels - 1 - level) * layout->index_bits;
}

/* --- elements --------------------------------------------------------------------------------- */

/* Packed: bits 48-55 size class, then the address; low bits: 0 slab; since 5.3 also 2-4 state. */
static struct jemalloc_element packed_read(const struct jemalloc_layout *layout, uint64_t word)
{
	uint64_t low = layout->minor == 3 ? JEMALLOC_EXTENT_BYTES - 1 : 1;

	return (struct jemalloc_element){
		.extent = word & ((1ull << 48) - 1) & ~low,
		.size_class = (unsigned int)(word >> 48),
		.state = layout->minor == 3 ? (int)(word >> 2 & 7) : -1,
		.slab = word & 1,
	};
}

struct jemalloc_element jemalloc_element_read(const struct jemalloc_layout *layout,
					      const uint8_t *bytes)
{
	uint32_t more;

	if (layout->element_bytes == 8)
		return packed_read(layout, u64_at(bytes));
	more = u32_at(bytes + 8);
	if (layout->minor == 3)
		return (struct jemalloc_element){.extent = u64_at(bytes),
						 .size_class = more >> 5,
						 .state = (int)(more >> 2 & 7),
						 .slab = more & 1};
	return (struct jemalloc_element){
		.extent = u64_at(bytes), .size_class = more, .state = -1, .slab = bytes[12] & 1};
}

/* --- extents ---------------------------------------------------------------------------------- */

#define ARENA_BITS 12 /* arena; then the flag slab */
#define ARENA_NONE 0xfffu
#define SIZE_BITS  8
#define FREE_BITS  10
#define FREE_MAP   64u /* offset */

static unsigned int bits_at(uint64_t word, unsigned int shift, unsigned int bits)
{
	return (unsigned int)(word >> shift & ((1u << bits) - 1));
}

void jemalloc_extent_read(const struct jemalloc_layout *layout,
			  const uint8_t bytes[JEMALLOC_EXTENT_BYTES], struct jemalloc_extent *out)
{
	uint64_t word = u64_at(bytes);

	*out = (struct jemalloc_extent){
		.address = u64_at(bytes + 8),
		.start = u64_at(bytes + 8) & ~(PAGE - 1),
		.bytes = u64_at(bytes + 16) & ~(PAGE - 1),
		.arena = bits_at(word, 0, ARENA_BITS),
		.slab = bits_at(word, ARENA_BITS, 1),
		.state = bits_at(word, layout->state_shift, layout->state_bits),
		.size_class = bits_at(word, layout->size_shift, SIZE_BITS),
		.free = bits_at(word, layout->free_shift, FREE_BITS),
	};
	memcpy(out->free_map, bytes + FREE_MAP, sizeof(out->free_map));
}

static bool slab_fits(const struct jemalloc_extent *extent, uint64_t block_bytes)
{
	uint64_t blocks = extent->bytes / block_bytes;
	unsigned int free = 0;

	if (!blocks || blocks > JEMALLOC_SLAB_BLOCKS || extent->address != extent->start)
		return false;
	/* The words behind those of its blocks are not initialised. */
	for (uint64_t first = 0; first < blocks; first += 64) {
		uint64_t word = extent->free_map[first / 64];

		if (blocks - first < 64 && word >> (blocks - first))
			return false;
		free += (unsigned int)__builtin_popcountll(word);
	}
	return free == extent->free;
}

bool jemalloc_extent_fits(const struct jemalloc_extent *extent,
			  const struct jemalloc_element *element, uint64_t page,
			  const struct jemalloc_sizes *sizes)
{
	if (extent->start != page || !extent->bytes || page >= ADDRESS_END ||
	    extent->bytes > ADDRESS_END - page || extent->arena == ARENA_NONE ||
	    extent->state >= JEMALLOC_STATES)
		return false;
	if (element->state >= 0 && (unsigned int)element->state != extent->state)
		return false;
	/* What an element tells besides is kept from when its extent was active. */
	if (extent->state != JEMALLOC_ACTIVE || extent->size_class == sizes->count)
		return true;
	return extent->slab == element->slab && extent->size_class == element->size_class &&
	       extent->size_class < sizes->count &&
	       (!extent->slab || slab_fits(extent, sizes->bytes[extent->size_class]));
}

/* --- sizes ------------------------------------------------------------------------------------ */

#define SIZES_LEAST 100u
#define SIZES_LAST  0x7000000000000000ull /* the largest size that a request can have */

int jemalloc_sizes_find(const uint8_t *bytes, size_t size, struct jemalloc_sizes *out)
{
	for (size_t at = 0; at + 16 <= size; at += 8) {
		unsigned int n = 0;
		uint64_t last = 0;

		if (u64_at(bytes + at) != 8 || u64_at(bytes + at + 8) != 16)
			continue;
		for (; n < JEMALLOC_SIZES_MAX && at + n * 8 + 8 <= size; n++) {
			uint64_t next = u64_at(bytes + at + n * 8);

			if (next <= last || next > SIZES_LAST || next % 8)
				break;
			out->bytes[n] = last = next;
		}
		if (last == SIZES_LAST && n >= SIZES_LEAST) {
			out->count = n;
			return 0;
		}
	}
	return -ENOENT;
}

unsigned int jemalloc_sizes_small(const struct jemalloc_sizes *sizes)
{
	unsigned int n = 0;

	while (n < sizes->count && sizes->bytes[n] < 4 * PAGE)
		n++;
	return n;
}

/* Up to 5.3.0 large blocks have the sizes of classes; since 5.3.1 any that is rounded up to one. */
static bool is_of_class(const struct jemalloc_sizes *sizes, unsigned int class, uint64_t bytes)
{
	return bytes <= sizes->bytes[class] && bytes > sizes->bytes[class - 1];
}

uint64_t jemalloc_large_bytes(const struct jemalloc_extent *extent,
			      const struct jemalloc_sizes *sizes, uint64_t *pad)
{
	unsigned int class = extent->size_class;
	uint64_t room = extent->bytes - (extent->address - extent->start);
	bool whole, padded;

	/* A small block that is sampled for a profile has an extent of its own. */
	if (class < jemalloc_sizes_small(sizes))
		return sizes->bytes[class] < room ? sizes->bytes[class] : room;
	whole = is_of_class(sizes, class, extent->bytes);
	padded = is_of_class(sizes, class, extent->bytes - PAGE);
	if (extent->address != extent->start || (padded && !whole))
		*pad = PAGE;
	else if (whole && !padded)
		*pad = 0;
	return extent->bytes - *pad < room ? extent->bytes - *pad : room;
}

/* --- memory of its own structures ------------------------------------------------------------- */

/*
 * {bytes; next block; an extent for what is left: first word, address, bytes}, of which no arena
 * has the extent.
 */
bool jemalloc_block_read(const uint8_t bytes[JEMALLOC_BLOCK_HEAD], uint64_t address,
			 struct jemalloc_block *out)
{
	uint64_t size = u64_at(bytes), next = u64_at(bytes + 8);
	uint64_t left = u64_at(bytes + 24), left_bytes = u64_at(bytes + 32);

	if (address % JEMALLOC_BLOCK_ALIGN || next % JEMALLOC_BLOCK_ALIGN || next >= ADDRESS_END ||
	    !size || size % PAGE || size > ADDRESS_END - address ||
	    bits_at(u64_at(bytes + 16), 0, ARENA_BITS) != ARENA_NONE)
		return false;
	if (left < address + JEMALLOC_BLOCK_HEAD || left > address + size ||
	    left_bytes != address + size - left)
		return false;
	*out = (struct jemalloc_block){address, address + size, left, !next};
	return true;
}

/* --- version ---------------------------------------------------------------------------------- */

/* "5.3.0-0-g54eaed1": a tag, the commits since, and the last of them. */
int jemalloc_version_find(const char *text, size_t size, char out[ALLOCATOR_VERSION])
{
	const char *end = text + size;

	for (const char *at = text; (at = memmem(at, (size_t)(end - at), "-g", 2)); at += 2) {
		const char *dash = at, *start;
		int dots = 0;

		while (dash > text && isdigit((unsigned char)dash[-1]))
			dash--;
		if (dash == at || dash == text || *--dash != '-')
			continue;
		for (start = dash;
		     start > text && (isdigit((unsigned char)start[-1]) || start[-1] == '.');
		     start--)
			dots += start[-1] == '.';
		if (dots != 2 || start == text || start[-1] || *start == '.' ||
		    dash - start >= (ptrdiff_t)ALLOCATOR_VERSION)
			continue;
		snprintf(out, ALLOCATOR_VERSION, "%.*s", (int)(dash - start), start);
		return 0;
	}
	return -ENOENT;
}
