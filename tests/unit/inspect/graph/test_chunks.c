/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of glibc's malloc in a heap whose contents look like headers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/graph/chunks.h"

#define START  0x10000000ull
#define BYTES  (1u << 20)
#define CHUNKS 1000u
#define EACH   112u
#define FREE   500u /* the number of a free chunk */

struct heap {
	uint8_t *bytes;
	struct image_segment segment;
	struct image image;
	struct chunks chunks;
};

static void put(struct heap *heap, uint64_t at, uint64_t value)
{
	memcpy(heap->bytes + at, &value, sizeof(value));
}

/* Every word of a block is a size that leads to the beginning of a later chunk. */
static void block_fill(struct heap *heap, uint64_t chunk)
{
	for (uint64_t at = chunk + 16; at < chunk + EACH; at += 8)
		put(heap, at, (10 * EACH - (at - 8 - chunk)) | 1);
}

static void heap_open(struct heap *heap, uint64_t start)
{
	*heap = (struct heap){.bytes = calloc(1, BYTES)};
	assert_non_null(heap->bytes);
	for (uint64_t i = 0; i < CHUNKS; i++) {
		block_fill(heap, i * EACH);
		put(heap, i * EACH + 8, EACH | (i == FREE + 1 ? 0 : 1));
	}
	put(heap, (FREE + 1) * EACH, EACH);
	/* The top chunk. */
	put(heap, CHUNKS * EACH + 8, (BYTES - CHUNKS * EACH) | 1);
	heap->segment = (struct image_segment){start, start + BYTES, heap->bytes, IMAGE_HEAP, ""};
	heap->image = (struct image){.segments = &heap->segment, .count = 1};
	assert_int_equal(chunks_read(&heap->chunks, &heap->image), 0);
}

static void heap_close(struct heap *heap)
{
	chunks_free(&heap->chunks);
	free(heap->bytes);
}

static void test_all(void **unused)
{
	struct heap heap;

	(void)unused;
	heap_open(&heap, START);
	for (uint64_t at = 16; at < CHUNKS * EACH; at += 8) {
		uint64_t chunk = at - 16, used = chunk % EACH == 0 && chunk / EACH != FREE;

		assert_int_equal(chunks_bytes(&heap.chunks, START + at), used ? EACH - 8 : 0);
	}
	/* The top chunk is not in use. */
	assert_int_equal(chunks_bytes(&heap.chunks, START + CHUNKS * EACH + 16), 0);
	heap_close(&heap);
}

/* A chunk was caught in a change: those before it are known, those behind it look like chunks. */
static void test_broken(void **unused)
{
	struct heap heap;
	uint64_t broken = 700 * EACH;

	(void)unused;
	heap_open(&heap, START);
	chunks_free(&heap.chunks);
	put(&heap, broken + 8, 9);
	assert_int_equal(chunks_read(&heap.chunks, &heap.image), 0);
	assert_int_equal(heap.chunks.heaps[0].until, broken);
	assert_int_equal(chunks_bytes(&heap.chunks, START + 16 + 16), 0);
	assert_int_equal(chunks_bytes(&heap.chunks, START + broken + 16), 0);
	assert_int_equal(chunks_bytes(&heap.chunks, START + broken + EACH + 16), EACH - 8);
	/* Nothing follows a header that leads to the middle of a block. */
	put(&heap, broken + EACH + 24, 80 | 1);
	put(&heap, broken + EACH + 16 + 80 + 8, 12345 | 1);
	assert_int_equal(chunks_bytes(&heap.chunks, START + broken + EACH + 32), 0);
	heap_close(&heap);
}

/* Memory that is no heap has no known chunks; a block may have a mapping of its own. */
static void test_mapped(void **unused)
{
	struct heap heap;

	(void)unused;
	heap_open(&heap, START);
	chunks_free(&heap.chunks);
	memset(heap.bytes, 0, BYTES);
	put(&heap, 8 * 4096 + 8, 0x3000 | 2);
	put(&heap, 12 * 4096 + 24, 0x3000 | 2);
	assert_int_equal(chunks_read(&heap.chunks, &heap.image), 0);
	assert_null(heap.chunks.heaps[0].heads);
	assert_int_equal(chunks_bytes(&heap.chunks, START + 8 * 4096 + 16), 0x3000 - 16);
	assert_int_equal(chunks_bytes(&heap.chunks, START + 12 * 4096 + 32), 0);
	put(&heap, 8 * 4096 + 8, (BYTES + 4096) | 2);
	assert_int_equal(chunks_bytes(&heap.chunks, START + 8 * 4096 + 16), 0);
	heap_close(&heap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_mapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
