/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/graph/chunks.h"

#include <errno.h>
#include <stdlib.h>

/* struct malloc_chunk: the size, with three flags, is in front of the block. */
#define CHUNK_FLAGS   7u
#define CHUNK_IN_USE  1u /* of the chunk before */
#define CHUNK_MAPPED  2u
#define CHUNK_MINIMUM 32u
#define CHUNK_HEADER  16u

#define FOLLOWING   6u           /* chunks behind one that must look like chunks, too */
#define HEAP_LEAST  32u          /* chunks of a heap whose end is not reached */
#define ARENA_ALIGN (1ull << 26) /* of the heaps of arenas other than the first */
#define ARENA_HEAD  4096u        /* their first chunk is behind a header of less than that */

static uint64_t size_at(const struct image_segment *segment, uint64_t chunk)
{
	return word_at(segment->bytes + chunk + 8);
}

/*
 * The offset behind the chunk at an offset of the segment; 0: there is none. in_use: also if the
 * chunk behind it says that this one is free.
 */
static uint64_t chunk_end(const struct image_segment *segment, uint64_t chunk, int in_use)
{
	uint64_t end = segment->end - segment->start, size, bytes;

	if (end < CHUNK_HEADER || chunk > end - CHUNK_HEADER)
		return 0;
	size = size_at(segment, chunk);
	bytes = size & ~(uint64_t)CHUNK_FLAGS;
	if (size & CHUNK_MAPPED || bytes < CHUNK_MINIMUM || bytes & 15 || bytes > end - chunk)
		return 0;
	/* The heap's last chunk, which is free, ends with it. */
	if (chunk + bytes > end - CHUNK_HEADER)
		return chunk + bytes == end && !in_use ? end : 0;
	/* A free chunk's size is also behind it. */
	if (!(size_at(segment, chunk + bytes) & CHUNK_IN_USE) &&
	    (in_use || word_at(segment->bytes + chunk + bytes) != bytes))
		return 0;
	return chunk + bytes;
}

/* Follows the chunks from an offset on; heads: marks them. Returns how many; *until: their end. */
static uint64_t chunks_follow(const struct image_segment *segment, uint64_t chunk, uint64_t most,
			      uint64_t *heads, uint64_t *until)
{
	uint64_t count = 0, next;

	while (count < most && (next = chunk_end(segment, chunk, 0)) != 0) {
		if (heads)
			heads[chunk / 1024] |= 1ull << chunk / 16 % 64;
		chunk = next;
		count++;
	}
	*until = chunk;
	return count;
}

/* Whether a heap's chunks begin at that offset. */
static bool is_heap(const struct image_segment *segment, uint64_t from)
{
	uint64_t until, count = chunks_follow(segment, from, HEAP_LEAST, NULL, &until);

	return count == HEAP_LEAST || (count && until == segment->end - segment->start);
}

static int heap_follow(struct chunks_heap *heap, const struct image_segment *segment)
{
	uint64_t bytes = segment->end - segment->start, from = 0;

	if (segment->kind != IMAGE_HEAP || segment->start & 15 || !segment->bytes)
		return 0;
	if (!(segment->start % ARENA_ALIGN))
		while (from < ARENA_HEAD && !is_heap(segment, from))
			from += 16;
	if (!is_heap(segment, from))
		return 0;
	heap->heads = calloc(bytes / 1024 + 1, sizeof(*heap->heads));
	if (!heap->heads)
		return -ENOMEM;
	heap->from = from;
	chunks_follow(segment, from, UINT64_MAX, heap->heads, &heap->until);
	return 0;
}

int chunks_read(struct chunks *out, const struct image *image)
{
	int err = 0;

	*out = (struct chunks){.image = image,
			       .heaps = calloc(image->count + 1, sizeof(*out->heaps))};
	if (!out->heaps)
		return -ENOMEM;
	for (size_t i = 0; i < image->count && !err; i++)
		err = heap_follow(&out->heaps[i], &image->segments[i]);
	return err;
}

void chunks_free(struct chunks *chunks)
{
	for (size_t i = 0; chunks->heaps && i < chunks->image->count; i++)
		free(chunks->heaps[i].heads);
	free(chunks->heaps);
	*chunks = (struct chunks){0};
}

/* A block that has a mapping of its own begins with a page. */
static uint64_t mapped_bytes(const struct image_segment *segment, uint64_t chunk, uint64_t size)
{
	uint64_t bytes = size & ~(uint64_t)CHUNK_FLAGS;

	if ((segment->start + chunk) & 4095 || bytes & 4095 || !bytes ||
	    bytes > segment->end - segment->start - chunk)
		return 0;
	return bytes - CHUNK_HEADER;
}

/*
 * Whether chunks follow from an offset on. A word in the middle of a block may look like a header;
 * that those to which it and its successors lead do so, too, is unlikely.
 */
static bool is_followed(const struct image_segment *segment, uint64_t chunk)
{
	uint64_t until, count = chunks_follow(segment, chunk, FOLLOWING, NULL, &until);

	if (count == FOLLOWING || until == segment->end - segment->start)
		return 1;
	/* A heap that was continued elsewhere ends with headers alone. */
	return until <= segment->end - segment->start - CHUNK_HEADER &&
	       (size_at(segment, until) & ~(uint64_t)CHUNK_FLAGS) == CHUNK_HEADER;
}

uint64_t chunks_bytes(const struct chunks *chunks, uint64_t address)
{
	const struct image_segment *segment = image_segment(chunks->image, address);

	if (!segment || segment->kind != IMAGE_HEAP || address & 15 ||
	    address - segment->start < CHUNK_HEADER)
		return 0;
	uint64_t chunk = address - segment->start - CHUNK_HEADER;
	const struct chunks_heap *heap = &chunks->heaps[segment - chunks->image->segments];
	int known = heap->heads && chunk >= heap->from && chunk < heap->until;
	if (known && !(heap->heads[chunk / 1024] >> chunk / 16 % 64 & 1))
		return 0;
	uint64_t size = size_at(segment, chunk);
	if (size & CHUNK_MAPPED)
		return mapped_bytes(segment, chunk, size);
	uint64_t end = chunk_end(segment, chunk, 1);
	return end && (known || is_followed(segment, end)) ? end - chunk - 8 : 0;
}
