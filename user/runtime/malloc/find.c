/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/find.h"

#include <errno.h>
#include <stdbool.h>

#include "util/word.h"

#define LOWEST_ADDRESS 4096u
#define ADDRESS_BITS   47
#define PAGE           4096u
#define COUNT_MAX      (1u << 20) /* of mmapped chunks, and of a tcache list */
#define BYTES_MAX      (1ull << 47)

static bool is_chunk(uint64_t word)
{
	return word >= LOWEST_ADDRESS && !(word >> ADDRESS_BITS) && !(word % GLIBC_ALIGNMENT);
}

/* A bin's head is shaped like a chunk whose links are the bin's two words. */
static bool is_bins(const uint8_t *bytes, uint64_t address)
{
	for (unsigned int i = 0; i < GLIBC_BINS; i++) {
		uint64_t head = address + i * 16 - GLIBC_HEADER;
		uint64_t forward = u64_at(bytes + i * 16), back = u64_at(bytes + i * 16 + 8);

		if (forward == head && back == head)
			continue;
		if (forward == head || back == head || !is_chunk(forward) || !is_chunk(back))
			return 0;
	}
	return 1;
}

int glibc_find_arena(const struct glibc_layout *layout, const uint8_t *bytes, size_t size,
		     uint64_t address, uint64_t *arena)
{
	struct glibc_arena_offsets offsets = glibc_arena_offsets(layout);
	uint32_t rest = offsets.bytes - offsets.bins;
	size_t last = 0;

	/*
	 * top and last_remainder, in front of the bins, may look like a bin, too: among matches
	 * that overlap the last is the right one, since the bitmap behind the bins is no bin.
	 */
	for (size_t at = offsets.bins; at + rest <= size; at += 8) {
		if (!is_bins(bytes + at, address + at))
			continue;
		if (last && at - last >= (size_t)GLIBC_BINS * 16)
			return -EEXIST;
		last = at;
		*arena = address + at - offsets.bins;
	}
	return last ? 0 : -ENOENT;
}

/* Up to 2.34 four ints end at mmapped_mem; later ones have hp_flags before them, and padding. */
uint32_t glibc_mmaps_count_before(const struct glibc_layout *layout)
{
	return layout->hp_flags ? 36 : 32;
}

/*
 * n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn_threshold; mmapped_mem, max_mmapped_mem; sbrk_base;
 * tcache_bins, tcache_max_bytes, tcache_count.
 */
static bool is_parameters(const struct glibc_layout *layout, const uint8_t *sbrk_base)
{
	const uint8_t *count = sbrk_base - glibc_mmaps_count_before(layout);

	return u32_at(count) <= u32_at(count + 8) && u32_at(count + 8) <= COUNT_MAX &&
	       u64_at(sbrk_base - 16) <= u64_at(sbrk_base - 8) &&
	       u64_at(sbrk_base - 8) < BYTES_MAX && u64_at(sbrk_base + 8) <= layout->tcache_bins &&
	       u64_at(sbrk_base + 16) < BYTES_MAX && u64_at(sbrk_base + 24) <= COUNT_MAX;
}

int glibc_find_parameters(const struct glibc_layout *layout, const uint8_t *bytes, size_t size,
			  uint64_t address, uint64_t heap_start, uint64_t *sbrk_base)
{
	int found = 0;

	for (size_t at = GLIBC_PARAMETERS_BEFORE; at + 32 <= size; at += 8) {
		if (u64_at(bytes + at) - heap_start >= PAGE || !is_parameters(layout, bytes + at))
			continue;
		if (found++)
			return -EEXIST;
		*sbrk_base = address + at;
	}
	return found ? 0 : -ENOENT;
}
