/* SPDX-License-Identifier: Apache-2.0 */
/* The analysis of inlined allocators on arm64's instructions: a small program of known shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "abi/events.h"
#include "arm64_code.h"
#include "object/insn/machine.h"
#include "probe/pymalloc/sites.h"

#define VADDR 0x401000ull
#define PAGE  (VADDR + 0x500000) /* of the program's variables */
#define NONE  ABI_REG_COUNT

struct program {
	struct arm64_code code;
	uint64_t starts[16];
	struct inline_image image;
	struct inline_sites sites;
};

static uint64_t label(const struct program *program, const char *name)
{
	return VADDR + arm64_label(&program->code, name);
}

/* Assembles the program with a change, and searches it. */
static void program_search(struct program *program, const char *change)
{
	static const char *const functions[] = {
		"alloc_var",  "alloc_const", "no_pool",       "give",   "resize",
		"copy_bytes", "refill",      "new_reference", "tracer", "object",
		"no_object",  "no_register", "new_object"};
	char text[256];
	uint64_t stubs;

	snprintf(text, sizeof(text), "%s\n.include \"tests/unit/data/assembly/arm64_program.s\"",
		 change);
	*program = (struct program){.code = arm64_assemble(text)};
	stubs = arm64_label(&program->code, "stubs");
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		program->starts[program->image.start_count++] = label(program, functions[i]);
	program->image = (struct inline_image){
		.machine = &machine_arm64,
		.text = {program->code.bytes, VADDR, stubs},
		.stubs = {{program->code.bytes + stubs, VADDR + stubs,
			   program->code.count - stubs}},
		.imports = {{PAGE + 0x2000 + 8, ABI_OP_MALLOC}, {PAGE + 0x2000 + 16, ABI_OP_FREE}},
		.import_count = 2,
		.starts = program->starts,
		.start_count = program->image.start_count,
		.new_reference = label(program, "new_reference"),
		.new_types = {PAGE + 0x1000 + 0x80},
	};
	assert_int_equal(inline_sites_find(&program->image, &program->sites), 0);
}

static const struct plan_site *site_at(const struct program *program, const char *name)
{
	for (size_t i = 0; i < program->sites.count; i++)
		if (program->sites.sites[i].vaddr == label(program, name))
			return &program->sites.sites[i];
	fail_msg("no site at %s", name);
	return NULL;
}

static void expect(const struct program *program, const char *name, uint64_t cookie)
{
	const struct plan_site *site = site_at(program, name);

	if (site->cookie != cookie)
		fail_msg("%s: %s: %llx, not %llx", name, site->why,
			 (unsigned long long)site->cookie, (unsigned long long)cookie);
}

static void test_shapes(void **state)
{
	static struct program program;

	(void)state;
	program_search(&program, "");
	assert_int_equal(program.sites.given_up_count, 0);
	assert_int_equal(program.sites.exact, 2);
	assert_int_equal(program.sites.always_new, 1);
	assert_int_equal(program.sites.count, 11);
	expect(&program, "at_var",
	       ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_X2, ABI_REG_X0, NONE));
	expect(&program, "at_const",
	       ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_X6, NONE, NONE) |
		       ABI_COOKIE_ADDEND(32));
	expect(&program, "at_give", ABI_COOKIE(ABI_OP_FREE, EVENT_API_OBJ, ABI_REG_X0, NONE, NONE));
	expect(&program, "at_give_lost",
	       ABI_COOKIE(ABI_OP_POOL_FREE, EVENT_API_OBJ, ABI_REG_X2, NONE, NONE));
	expect(&program, "at_pool",
	       ABI_COOKIE(ABI_OP_REFILL, EVENT_API_OBJ, NONE, NONE, NONE) | ABI_COOKIE_ADDEND(14));
	expect(&program, "at_resize",
	       ABI_COOKIE(ABI_OP_RESIZE, EVENT_API_OBJ, ABI_REG_X19, ABI_REG_X3, NONE));
	expect(&program, "at_malloc",
	       ABI_COOKIE(ABI_OP_MALLOC, EVENT_API_LARGE, ABI_REG_X0, NONE, NONE));
	expect(&program, "at_malloc_end",
	       ABI_COOKIE(ABI_OP_END, EVENT_API_LARGE, ABI_REG_X0, NONE, NONE));
	expect(&program, "at_free", ABI_COOKIE(ABI_OP_FREE, EVENT_API_RAW, ABI_REG_X0, NONE, NONE));
	expect(&program, "at_function",
	       ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, ABI_REG_X0, NONE, NONE));
	expect(&program, "at_object",
	       ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, ABI_REG_X20, NONE, NONE));
	for (size_t i = 0; i < program.sites.count; i++)
		if (program.sites.sites[i].op != ABI_OP_REFILL)
			assert_true(program.sites.sites[i].emulated);
	inline_sites_free(&program.sites);
}

/* Where a pool is taken into use: never at an instruction that another path reaches, too. */
static void test_new_pools(void **state)
{
	static struct program program;

	(void)state;
	program_search(&program, "");
	assert_int_equal(program.sites.pool_count, 2);
	assert_int_equal(program.sites.pools[0].vaddr, label(&program, "at_pool"));
	assert_int_equal(program.sites.pools[1].vaddr, label(&program, "at_pool_stored"));
	assert_false(program.sites.pools_complete);
	inline_sites_free(&program.sites);
}

/* A multiplication by another number than three is no decision about a block's place. */
static void test_others(void **state)
{
	static struct program program;

	(void)state;
	program_search(&program, ".set FACTOR, 5");
	assert_int_equal(program.sites.found[INLINE_RESIZE], 0);
	inline_sites_free(&program.sites);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_new_pools),
		cmocka_unit_test(test_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
