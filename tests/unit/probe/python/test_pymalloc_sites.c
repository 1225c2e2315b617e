/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analysis of inlined allocators: on a small program of known shapes, and on real interpreters.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/events.h"
#include "abi/target.h"
#include "probe/python/plan_inline.h"
#include "pymalloc_program.h"

static void test_shapes(void **state)
{
	(void)state;
	struct inline_image image = image_of(program_code());
	struct inline_sites sites;

	assert_int_equal(inline_sites_find(&image, &sites), 0);
	assert_int_equal(sites.count, 9);
	assert_int_equal(sites.given_up_count, 0);
	assert_int_equal(sites.exact, 2);
	assert_true(site_at(&sites, at(&program, "at_const"))->cookie ==
		    (ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_DX, NONE, NONE) |
		     ABI_COOKIE_ADDEND(32)));
	assert_true(site_at(&sites, at(&program, "at_var"))->cookie ==
		    (ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_R12, ABI_REG_AX, NONE) |
		     ABI_COOKIE_ADDEND(1)));
	assert_true(site_at(&sites, at(&program, "refill"))->cookie ==
		    (ABI_COOKIE(ABI_OP_REFILL, EVENT_API_OBJ, NONE, NONE, NONE) |
		     ABI_COOKIE_ADDEND(14)));
	assert_int_equal(site_at(&sites, at(&program, "refill"))->with_return, 1);
	assert_true(site_at(&sites, at(&program, "at_give"))->cookie ==
		    ABI_COOKIE(ABI_OP_FREE, EVENT_API_OBJ, ABI_REG_SI, NONE, NONE));
	assert_true(site_at(&sites, at(&program, "at_give_lost"))->cookie ==
		    ABI_COOKIE(ABI_OP_POOL_FREE, EVENT_API_OBJ, ABI_REG_AX, NONE, NONE));
	assert_true(site_at(&sites, at(&program, "at_malloc"))->cookie ==
		    ABI_COOKIE(ABI_OP_MALLOC, EVENT_API_LARGE, ABI_REG_DI, NONE, NONE));
	assert_int_equal(site_at(&sites, at(&program, "at_malloc"))->with_return, 0);
	assert_true((site_at(&sites, at(&program, "at_malloc_end"))->cookie & 0xff) == ABI_OP_END);
	assert_true(site_at(&sites, at(&program, "at_free"))->cookie ==
		    ABI_COOKIE(ABI_OP_FREE, EVENT_API_RAW, ABI_REG_DI, NONE, NONE));
	assert_true(site_at(&sites, at(&program, "tail"))->cookie ==
		    ABI_COOKIE(ABI_OP_MALLOC, EVENT_API_RAW, ABI_REG_DI, NONE, NONE));
	assert_int_equal(site_at(&sites, at(&program, "tail"))->with_return, 1);
	inline_sites_free(&sites);
}

/* A second path to the site may have another size. */
static void test_joined_ways(void **state)
{
	(void)state;
	struct inline_image image;
	struct inline_sites sites;
	uint8_t code[PROGRAM_SIZE];

	memcpy(code, program_code(), sizeof(code));
	/* Replaces the decoy with jmp 401037, where alloc_const loads the pool. */
	memcpy(code + (at(&program, "decoy") - TEXT), "\xe9\x02\xff\xff\xff\xc3\xc3\xc3", 8);
	image = image_of(code);
	assert_int_equal(inline_sites_find(&image, &sites), 0);
	assert_int_equal(sites.exact, 1);
	assert_true(site_at(&sites, at(&program, "at_const"))->cookie ==
		    ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_DX, NONE, NONE));
	inline_sites_free(&sites);
}

/* Bytes that match the shape in the middle of an instruction must not be probed. */
static void test_no_instruction(void **state)
{
	(void)state;
	struct inline_image image;
	struct inline_sites sites;
	uint8_t code[PROGRAM_SIZE];

	memcpy(code, program_code(), sizeof(code));
	/* A movabs replaces the load of the pool. It includes the eight bytes that follow. */
	memcpy(code + (at(&program, "at_load") - TEXT), "\x48\xb8", 2);
	image = image_of(code);
	assert_int_equal(inline_sites_find(&image, &sites), 0);
	assert_int_equal(sites.given_up[INLINE_POOL], 1);
	assert_int_equal(sites.found[INLINE_POOL], 1);
	inline_sites_free(&sites);
}

/* Finds the sites of the program with one more function. */
static void find_with(const uint8_t *function, size_t bytes, struct inline_sites *sites)
{
	uint8_t code[TEXT_SIZE + 128];
	struct inline_image image = image_of(program_code());
	uint64_t more[STARTS + 1];

	memcpy(code, program_code(), TEXT_SIZE);
	memcpy(code + TEXT_SIZE, function, bytes);
	memcpy(more, image.starts, STARTS * sizeof(more[0]));
	more[image.start_count] = TEXT + TEXT_SIZE;
	image.text = (struct inline_range){code, TEXT, TEXT_SIZE + bytes};
	image.stubs[0].bytes = 0;
	image.starts = more;
	image.start_count++;
	assert_int_equal(inline_sites_find(&image, sites), 0);
}

/* A realloc that may leave its block where it is. */
static void test_resize(void **state)
{
	(void)state;
	struct listing resizing = {0};
	struct inline_sites sites;

	listing_open(&resizing, "resize", STUB);
	find_with(resizing.code, resizing.bytes, &sites);
	assert_int_equal(sites.found[INLINE_RESIZE], 1);
	assert_true(site_at(&sites, at(&resizing, "at_resize"))->cookie ==
		    ABI_COOKIE(ABI_OP_RESIZE, EVENT_API_OBJ, ABI_REG_BX, ABI_REG_SI, NONE));
	inline_sites_free(&sites);
	elf_file_close(resizing.file);
}

/*
 * The block's address is kept on the stack. It is found by the register from which the pool's
 * address was computed.
 */
static void test_resize_put_aside(void **state)
{
	(void)state;
	struct listing resizing = {0};
	struct inline_sites sites;
	uint8_t *mask;

	listing_open(&resizing, "resize_put_aside", STUB);
	find_with(resizing.code, resizing.bytes, &sites);
	assert_int_equal(sites.found[INLINE_RESIZE], 1);
	assert_true(site_at(&sites, at(&resizing, "at_resize"))->cookie ==
		    ABI_COOKIE(ABI_OP_RESIZE, EVENT_API_OBJ, ABI_REG_BX, ABI_REG_SI, NONE));
	inline_sites_free(&sites);

	/* The mask of and $-16384 becomes a mask that does not give a pool's address. */
	mask = resizing.code + (at(&resizing, "at_mask") - STUB) + 3;
	mask[0] = 0xf8;
	mask[1] = 0xff;
	find_with(resizing.code, resizing.bytes, &sites);
	assert_int_equal(sites.found[INLINE_RESIZE], 0);
	assert_int_equal(sites.given_up[INLINE_RESIZE], 1);
	inline_sites_free(&sites);
	elf_file_close(resizing.file);
}

static void test_nothing(void **state)
{
	(void)state;
	static const uint8_t code[PROGRAM_SIZE];
	struct inline_image image = image_of(code), empty = {.machine = &machine_x86};
	struct inline_sites sites;

	assert_int_equal(inline_sites_find(&image, &sites), 0);
	assert_false(inline_sites_have_pymalloc(&sites));
	assert_int_equal(sites.count, 0);
	assert_int_equal(sites.objects_unknown, 1);
	inline_sites_free(&sites);
	assert_int_equal(inline_sites_find(&empty, &sites), 0);
	assert_int_equal(sites.count, 0);
	inline_sites_free(&sites);
}

static struct elf_file *file_open(const char *path)
{
	struct elf_file *file = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && elf_file_open(&file, fd, path, NULL))
		close(fd);
	return file;
}

/*
 * A distribution's interpreter: the allocators are inlined in many places, and every place is
 * understood.
 */
static void test_distribution(void **state)
{
	(void)state;
	struct elf_file *file = file_open("/usr/bin/python3");
	struct inline_sites sites;

	if (!file || elf_file_has_symtab(file) || plan_inline(file, &sites) == -ENOTSUP) {
		elf_file_close(file);
		print_message("/usr/bin/python3 is no stripped interpreter\n");
		skip();
	}
	if (sites.found[INLINE_POOL] < 20) {
		print_message("/usr/bin/python3 has nothing inlined\n");
		inline_sites_free(&sites);
		elf_file_close(file);
		skip();
	}
	assert_int_equal(sites.given_up_count, sites.given_up[INLINE_OBJECT]);
	assert_true(sites.found[INLINE_OBJECT] >= 20);
	assert_true(sites.given_up[INLINE_OBJECT] * 50 <= sites.found[INLINE_OBJECT]);
	assert_true(sites.exact * 10 >= sites.found[INLINE_POOL] * 8);
	assert_true(sites.found[INLINE_REFILL] >= 1);
	for (size_t i = 0; i < sites.count; i++) {
		uint64_t offset;

		assert_int_equal(elf_file_offset(file, sites.sites[i].vaddr, &offset), 0);
		assert_true(offset == sites.sites[i].offset);
	}
	inline_sites_free(&sites);
	elf_file_close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),           cmocka_unit_test(test_joined_ways),
		cmocka_unit_test(test_no_instruction),   cmocka_unit_test(test_resize),
		cmocka_unit_test(test_resize_put_aside), cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_distribution),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
