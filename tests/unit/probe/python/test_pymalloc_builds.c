/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analysis of inlined allocators on small libraries, with the code shapes of other compilers
 * and linkers.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/events.h"
#include "abi/target.h"
#include "assembly.h"
#include "probe/python/plan_ends.h"
#include "probe/python/plan_inline.h"

#define ASSEMBLY "tests/unit/data/assembly"

struct library {
	struct elf_file *file;
	struct inline_sites sites;
};

/* Assembles and links the file of that name, and searches it for sites. */
static void library_open(struct library *library, const char *name)
{
	library->file = assembly_open("-Wa,-I" ASSEMBLY,
				      ".include \"macros.s\"\n.include \"%s.s\"\n", name);
	assert_int_equal(plan_inline(library->file, &library->sites), 0);
}

static void library_close(struct library *library)
{
	inline_sites_free(&library->sites);
	elf_file_close(library->file);
}

static uint64_t label(const struct library *library, const char *name)
{
	struct elf_symbol symbol;

	if (elf_file_symbol(library->file, name, &symbol))
		fail_msg("no label %s", name);
	return symbol.vaddr;
}

/* The site at that label, or NULL. */
static const struct plan_site *site_at(const struct library *library, const char *name)
{
	uint64_t vaddr = label(library, name);

	for (size_t i = 0; i < library->sites.count; i++)
		if (library->sites.sites[i].vaddr == vaddr)
			return &library->sites.sites[i];
	return NULL;
}

static void assert_object(const struct library *library, const char *name, uint32_t reg)
{
	const struct plan_site *site = site_at(library, name);

	if (!site)
		fail_msg("no site at %s", name);
	assert_true(site->cookie ==
		    ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, reg, ABI_REG_COUNT, ABI_REG_COUNT));
}

/*
 * A linker replaces a load from a slot by a lea if the slot points to the file's own variable. The
 * exported function may be only a jump to code that its copies share.
 */
static void test_address_taken(void **state)
{
	(void)state;
	struct library library;

	library_open(&library, "address_taken");
	assert_int_equal(library.sites.objects_unknown, 0);
	assert_int_equal(library.sites.object_sites, 1);
	assert_object(&library, "at_body", ABI_REG_DI);
	assert_object(&library, "at_hoisted", ABI_REG_BX);
	assert_object(&library, "at_direct", ABI_REG_R13);
	assert_int_equal(library.sites.found[INLINE_OBJECT], 3);
	library_close(&library);
}

/* If the code that reads the flag is not recognised, that is reported. */
static void test_not_recognised(void **state)
{
	(void)state;
	struct library library;

	library_open(&library, "not_recognised");
	assert_int_equal(library.sites.objects_unknown, 1);
	assert_int_equal(library.sites.found[INLINE_OBJECT], 0);
	library_close(&library);
}

/*
 * The output of BOLT: moved functions, parts of them in other places, and the original section.
 * Some functions in the original section are still used: by a call, by an address, or through one
 * another. The others are the originals of moved functions.
 */
static void test_rewritten(void **state)
{
	(void)state;
	static const char *const alive[] = {"at_moved", "at_called", "at_taken", "at_listed"};
	struct library library;

	library_open(&library, "rewritten");
	for (size_t i = 0; i < sizeof(alive) / sizeof(alive[0]); i++)
		assert_object(&library, alive[i], ABI_REG_BX);
	assert_null(site_at(&library, "at_original"));
	assert_null(site_at(&library, "at_only_original"));
	library_close(&library);
}

static void assert_size(const struct library *library, const char *name, uint32_t reg,
			int64_t addend)
{
	const struct plan_site *site = site_at(library, name);

	if (!site)
		fail_msg("no site at %s", name);
	if (site->cookie !=
	    (ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_DX, reg, ABI_REG_COUNT) |
	     ABI_COOKIE_ADDEND(addend)))
		fail_msg("%s: %s", name, site->why);
}

/*
 * How compilers test whether a size is in the range 1 to 512, what is still known where two paths
 * join behind the test, and constants.
 */
static void test_sizes(void **state)
{
	(void)state;
	struct library library;

	library_open(&library, "sizes");
	assert_size(&library, "at_itself", ABI_REG_BX, 0);
	assert_size(&library, "at_wrapped", ABI_REG_AX, 0x201);
	assert_size(&library, "at_other_way", ABI_REG_AX, 1);
	assert_size(&library, "at_no_size", ABI_REG_COUNT, 0);
	assert_size(&library, "at_two_ways", ABI_REG_BX, 0);
	assert_size(&library, "at_masked", ABI_REG_R9, 0);
	assert_size(&library, "at_malloc", ABI_REG_COUNT, 0x38);
	assert_size(&library, "at_calloc", ABI_REG_COUNT, 0x60);
	assert_size(&library, "at_calloc_of_one", ABI_REG_R12, 0);
	assert_size(&library, "at_calloc_of_many", ABI_REG_COUNT, 0);
	assert_int_equal(library.sites.exact, 8);
	library_close(&library);
}

/* Where several paths join, the size is what holds on all of them. */
static void test_sizes_meeting(void **state)
{
	(void)state;
	struct library library;

	library_open(&library, "sizes_meeting");
	assert_size(&library, "at_other_register", ABI_REG_R15, 0);
	assert_size(&library, "at_same_constant", ABI_REG_COUNT, 8);
	assert_size(&library, "at_two_constants", ABI_REG_R9, 0);
	assert_size(&library, "at_not_told", ABI_REG_COUNT, 0);
	assert_int_equal(library.sites.exact, 3);
	library_close(&library);
}

/* Names the exported functions with unknown ends if the plan lacks the sites of that op. */
static int ends_without(const struct library *library, enum abi_op op, const char *out[PLAN_ENDS])
{
	struct plan_site sites[32];
	size_t count = 0;

	assert_true(library->sites.count <= 32);
	for (size_t i = 0; i < library->sites.count; i++)
		if (library->sites.sites[i].op != op)
			sites[count++] = library->sites.sites[i];
	return plan_ends_unknown(library->file, sites, count, EVENT_MODE_EXACT, out);
}

/*
 * Exported functions lead to known sites: through a slot, through a slot in a structure whose
 * address is in another slot, or through a slot that is compared with the function that it holds. A
 * missing site is noticed. Code that cannot be followed is not.
 */
static void test_ends(void **state)
{
	(void)state;
	const char *names[PLAN_ENDS];
	struct library library;

	library_open(&library, "ends");
	assert_int_equal(ends_without(&library, ABI_OP_TRACK, names), 0);
	assert_int_equal(ends_without(&library, ABI_OP_POOL, names), 1);
	assert_string_equal(names[0], "PyObject_Malloc");
	assert_int_equal(ends_without(&library, ABI_OP_MALLOC, names), 2);
	assert_string_equal(names[0], "PyMem_RawMalloc");
	assert_string_equal(names[1], "PyObject_Malloc");
	assert_int_equal(ends_without(&library, ABI_OP_FREE, names), 1);
	assert_string_equal(names[0], "PyObject_Free");
	library_close(&library);
}

/*
 * A large block is requested through a slot, in the function or in a part of it, or by a function
 * that jumps through a slot.
 */
static void test_large(void **state)
{
	(void)state;
	static const char *const names[] = {"in_function", "in_part", "behind_jump", "restored"};
	struct library library;

	library_open(&library, "large");
	assert_int_equal(library.sites.large_count, 4);
	for (size_t i = 0; i < 4; i++) {
		size_t at = 0;

		while (at < 4 && library.sites.large[at] != label(&library, names[i]))
			at++;
		if (at == 4)
			fail_msg("not found: %s", names[i]);
	}
	library_close(&library);
}

static void test_first_block(void **state)
{
	(void)state;
	struct library library;
	const struct plan_site *site;

	library_open(&library, "first_block");
	assert_int_equal(library.sites.found[INLINE_FIRST], 1);
	assert_int_equal(library.sites.given_up_count, 0);
	assert_true((site_at(&library, "at_pool")->cookie >> 32 & 0xff) == ABI_REG_SP);
	site = site_at(&library, "at_first");
	assert_non_null(site);
	assert_true(site->cookie == ABI_COOKIE(ABI_OP_FIRST_BLOCK, EVENT_API_OBJ, ABI_REG_R9,
					       ABI_REG_COUNT, ABI_REG_COUNT));
	library_close(&library);
}

/* If the new class is already stored, it is unknown whether the pool is initialised again. */
static void test_first_block_unknown(void **state)
{
	(void)state;
	struct library library;

	library_open(&library, "first_block_unknown");
	assert_int_equal(library.sites.found[INLINE_FIRST], 0);
	assert_int_equal(library.sites.given_up[INLINE_FIRST], 1);
	assert_null(site_at(&library, "at_first"));
	library_close(&library);
}

static void assert_resize(const struct library *library, const char *name, uint32_t block,
			  uint32_t size, int64_t addend)
{
	const struct plan_site *site = site_at(library, name);

	if (!site)
		fail_msg("no site at %s", name);
	assert_true(site->cookie ==
		    (ABI_COOKIE(ABI_OP_RESIZE, EVENT_API_OBJ, block, size, ABI_REG_COUNT) |
		     ABI_COOKIE_ADDEND(addend)));
}

/*
 * The code that sets the size of a moved block in a realloc is behind a test, before the branch, or
 * on another path.
 */
static void test_resizes(void **state)
{
	(void)state;
	struct library library;

	library_open(&library, "resizes");
	assert_resize(&library, "at_question", ABI_REG_BX, ABI_REG_SI, 0);
	assert_resize(&library, "at_before", ABI_REG_DI, ABI_REG_DX, 1);
	assert_resize(&library, "at_other_way", ABI_REG_BX, ABI_REG_R15, 0);
	assert_null(site_at(&library, "at_another"));
	assert_int_equal(library.sites.found[INLINE_RESIZE], 3);
	library_close(&library);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address_taken), cmocka_unit_test(test_not_recognised),
		cmocka_unit_test(test_rewritten),     cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_sizes_meeting), cmocka_unit_test(test_ends),
		cmocka_unit_test(test_large),         cmocka_unit_test(test_resizes),
		cmocka_unit_test(test_first_block),   cmocka_unit_test(test_first_block_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
