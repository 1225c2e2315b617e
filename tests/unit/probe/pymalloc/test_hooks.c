/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hand-made code with the shapes that compilers give PyMem_SetupDebugHooks(): absolute addresses,
 * two ways of storing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "probe/pymalloc/hooks.h"

#define CODE      0x401000u
#define CALLEE    0x401100u
#define CONSTANTS 0x402000u
#define SLOTS     0x403000u /* 40 bytes each: context and four functions */
#define RAW       0x405000u
#define OBJ       0x406000u
#define IMAGE     0x2000u

struct image {
	uint8_t bytes[IMAGE];
	size_t at, limit; /* limit: nothing beyond it can be read */
};

static void put(struct image *image, const char *opcode, size_t length, uint32_t first,
		uint32_t second, int words)
{
	memcpy(image->bytes + image->at, opcode, length);
	memcpy(image->bytes + image->at + length, &first, 4);
	memcpy(image->bytes + image->at + length + 4, &second, 4);
	image->at += length + 4 * (size_t)words;
}

static uint32_t slot(uint32_t domain)
{
	return SLOTS + 40 * domain + 8;
}

/* cmpq $hook,slot.malloc */
static void guard(struct image *image, uint32_t domain, uint32_t hook)
{
	put(image, "\x48\x81\x3c\x25", 4, slot(domain), hook, 2);
}

/* movq $hook,slot.… four times */
static void store_each(struct image *image, uint32_t domain, uint32_t hooks)
{
	for (uint32_t i = 0; i < 4; i++)
		put(image, "\x48\xc7\x04\x25", 4, slot(domain) + 8 * i, hooks + 16 * i, 2);
}

/* movq constant,%xmm0; movhps constant,%xmm0; movups %xmm0,slot.… twice */
static void store_pairs(struct image *image, uint32_t domain, uint32_t hooks)
{
	for (uint32_t i = 0; i < 4; i += 2) {
		uint32_t constant = CONSTANTS + 32 * domain + 8 * i;

		for (uint32_t k = 0; k < 2; k++) {
			uint64_t hook = hooks + 16 * (i + k);

			memcpy(image->bytes + (constant - CODE + 8 * k), &hook, 8);
		}
		put(image, "\xf3\x0f\x7e\x04\x25", 5, constant, 0, 1);
		put(image, "\x0f\x16\x04\x25", 4, constant + 8, 0, 1);
		put(image, "\x0f\x11\x04\x25", 4, slot(domain) + 8 * i, 0, 1);
	}
}

static int image_read(void *context, uint64_t vaddr, void *out, size_t bytes)
{
	const struct image *image = context;

	if (vaddr < CODE || vaddr - CODE >= image->limit)
		return 0;
	if (bytes > image->limit - (vaddr - CODE))
		bytes = image->limit - (vaddr - CODE);
	memcpy(out, image->bytes + (vaddr - CODE), bytes);
	return (int)bytes;
}

/* raw is set in a called function, mem and obj in the first one. */
static void image_make(struct image *image)
{
	memset(image, 0, sizeof(*image));
	image->limit = IMAGE;
	put(image, "\xe8", 1, CALLEE - (CODE + 5), 0, 1);
	guard(image, 1, OBJ);
	store_pairs(image, 1, OBJ);
	guard(image, 2, OBJ);
	store_pairs(image, 2, OBJ);
	image->bytes[image->at++] = 0xc3;
	image->at = CALLEE - CODE;
	guard(image, 0, RAW);
	store_each(image, 0, RAW);
	image->bytes[image->at++] = 0xc3;
}

static int find(struct image *image, struct hooks *hooks)
{
	return hooks_find(image_read, image, CODE, 0, hooks);
}

static void test_found(void **state)
{
	struct image image;
	struct hooks hooks;

	(void)state;
	image_make(&image);
	assert_int_equal(find(&image, &hooks), 0);
	for (uint32_t i = 0; i < HOOKS_FUNCTIONS; i++) {
		assert_int_equal(hooks.raw[i], RAW + 16 * i);
		assert_int_equal(hooks.obj[i], OBJ + 16 * i);
	}
	/* With this function size, one domain is not in the function. */
	assert_int_equal(hooks_find(image_read, &image, CODE, 60, &hooks), -ENOENT);
}

/* The stored function differs from the compared one; mem and obj differ; all three are the same. */
static void test_inconsistencies(void **state)
{
	struct image image;
	struct hooks hooks;

	(void)state;
	image_make(&image);
	image.at = CALLEE - CODE;
	guard(&image, 0, RAW + 8);
	assert_int_equal(find(&image, &hooks), -ENOENT);
	image_make(&image);
	image.bytes[CONSTANTS + 32 + 8 - CODE] ^= 1;
	assert_int_equal(find(&image, &hooks), -ENOENT);
	image_make(&image);
	image.at = CALLEE - CODE;
	guard(&image, 0, OBJ);
	store_each(&image, 0, OBJ);
	assert_int_equal(find(&image, &hooks), -ENOENT);
}

static void test_truncated(void **state)
{
	struct image image;
	struct hooks hooks;

	(void)state;
	image_make(&image);
	for (image.limit = 0; image.limit < CONSTANTS + 32 - CODE; image.limit++)
		assert_int_equal(find(&image, &hooks), -ENOENT);
}

static void test_random(void **state)
{
	struct image *image = malloc(sizeof(*image));
	struct hooks hooks;

	(void)state;
	srandom(1);
	for (int round = 0; round < 200; round++) {
		image_make(image);
		for (int i = 0; i < 40; i++)
			image->bytes[(size_t)random() % 0x200] = (uint8_t)random();
		find(image, &hooks);
	}
	free(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_found),
		cmocka_unit_test(test_inconsistencies),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
