/* SPDX-License-Identifier: Apache-2.0 */
/* Where inlined code creates an object: sites in small programs of known shapes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "abi/events.h"
#include "abi/target.h"
#include "probe/python/plan_inline.h"
#include "pymalloc_program.h"

#define OBJECTS      (TEXT + TEXT_SIZE)
#define TRACING_SLOT 0x404100u
#define NEW_TYPE     0x404300u

/* The program, and more code after it. */
struct appended {
	uint8_t code[TEXT_SIZE + 1024];
	uint64_t starts[32];
	struct inline_image image;
};

/*
 * names: the functions of more, as labels in their order. The code after the label end, and the
 * functions there, are left out.
 */
static void program_append(struct appended *out, const struct listing *more, const char *end,
			   const char *const *names, size_t count)
{
	uint64_t last = at(more, end);
	size_t bytes = last - OBJECTS;

	assert_true(TEXT_SIZE + bytes <= sizeof(out->code));
	assert_true(STARTS + count <= sizeof(out->starts) / sizeof(out->starts[0]));
	out->image = image_of(program_code());
	memcpy(out->code, program_code(), TEXT_SIZE);
	memcpy(out->code + TEXT_SIZE, more->code, bytes);
	memcpy(out->starts, out->image.starts, STARTS * sizeof(out->starts[0]));
	for (size_t i = 0; i < count && at(more, names[i]) < last; i++)
		out->starts[out->image.start_count++] = at(more, names[i]);
	out->image.text = (struct inline_range){out->code, TEXT, TEXT_SIZE + bytes};
	out->image.stubs[0].bytes = 0;
	out->image.starts = out->starts;
}

static struct listing objects;

static void objects_find(const char *new_reference, uint64_t slot, struct inline_sites *out)
{
	static const char *const functions[] = {"newref",        "copies",        "slow",
						"newref_tracer", "copies_tracer", "copies_slot"};
	struct appended it;

	listing_open(&objects, "objects", OBJECTS);
	program_append(&it, &objects, "end", functions, sizeof(functions) / sizeof(functions[0]));
	it.image.new_reference = new_reference ? at(&objects, new_reference) : 0;
	it.image.tracing_slots[0] = slot;
	it.image.tracing_offset = 4;
	it.image.new_types[1] = NEW_TYPE;
	assert_int_equal(inline_sites_find(&it.image, out), 0);
}

static void assert_object(const struct inline_sites *sites, const struct listing *listing,
			  const char *label, uint32_t reg, int64_t addend)
{
	assert_true(site_at(sites, at(listing, label))->cookie ==
		    (ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, reg, NONE, NONE) |
		     ABI_COOKIE_ADDEND(addend)));
}

/*
 * Every copy of the code that tests whether tracemalloc traces and, if it does, makes the call that
 * _Py_NewReference makes.
 */
static void test_objects(void **state)
{
	(void)state;
	struct inline_sites sites;

	objects_find("newref", 0, &sites);
	assert_int_equal(sites.found[INLINE_OBJECT], 3);
	assert_object(&sites, &objects, "at_newref", ABI_REG_DI, 0);
	assert_object(&sites, &objects, "at_copy", ABI_REG_BX, 0);
	assert_object(&sites, &objects, "at_copy_16", ABI_REG_BP, 16);
	assert_int_equal(sites.given_up[INLINE_OBJECT], 1);
	assert_true(sites.given_up_list[0].vaddr == at(&objects, "at_unknown"));
	assert_int_equal(sites.always_new, 1);
	inline_sites_free(&sites);
}

/* The functions of new_ways.s. */
static const char *const ways_functions[] = {"newref", "slow", "all",     "other",  "falls",
					     "short",  "else", "clobber", "detours"};

static void ways_find(const char *name, struct listing *ways, struct inline_sites *out)
{
	struct appended it;

	listing_open(ways, name, OBJECTS);
	program_append(&it, ways, "end", ways_functions,
		       sizeof(ways_functions) / sizeof(ways_functions[0]));
	it.image.new_reference = at(ways, "newref");
	it.image.new_types[0] = NEW_TYPE;
	assert_int_equal(inline_sites_find(&it.image, out), 0);
}

/* An object is new only if it is new on every path. */
static void test_new_ways(void **state)
{
	(void)state;
	static const char *const joins[] = {"at_other", "at_falls", "at_short", "at_else",
					    "at_clobber"};
	const size_t join_count = sizeof(joins) / sizeof(joins[0]);
	struct listing ways = {0};
	struct inline_sites sites;

	ways_find("new_ways", &ways, &sites);
	assert_int_equal(sites.always_new, 1);
	assert_int_equal(sites.found[INLINE_OBJECT], 1 + join_count);
	for (size_t i = 0; i < join_count; i++)
		assert_object(&sites, &ways, joins[i], ABI_REG_BX, 0);
	inline_sites_free(&sites);
	elf_file_close(ways.file);
}

/* Up to 3.11 a detour increments the type's reference count in memory. */
static void test_new_counted(void **state)
{
	(void)state;
	struct listing ways = {0};
	struct inline_sites sites;

	ways_find("new_counted", &ways, &sites);
	assert_int_equal(sites.always_new, 2);
	inline_sites_free(&sites);
	elf_file_close(ways.file);
}

/* Builds without link-time optimisation. */
static struct listing calls;

static void calls_find(const char *end, struct inline_sites *out)
{
	static const char *const functions[] = {"newref", "slow", "calls", "address"};
	struct appended it;

	listing_open(&calls, "reference_calls", OBJECTS);
	program_append(&it, &calls, end, functions, 4);
	it.image.new_reference = at(&calls, "newref");
	it.image.new_reference_slots[0] = 0x404310;
	it.image.new_slots[2] = 0x404308;
	assert_int_equal(inline_sites_find(&it.image, out), 0);
}

/* The calls are probed instead of the function, unless its address is taken. */
static void test_object_calls(void **state)
{
	(void)state;
	struct inline_sites sites;

	calls_find("address", &sites);
	assert_int_equal(sites.object_sites, 1);
	assert_int_equal(sites.found[INLINE_OBJECT], 3);
	assert_int_equal(sites.always_new, 1);
	assert_object(&sites, &calls, "at_call", ABI_REG_DI, 0);
	assert_object(&sites, &calls, "at_jump", ABI_REG_DI, 0);
	assert_object(&sites, &calls, "at_slot_call", ABI_REG_DI, 0);
	inline_sites_free(&sites);
	calls_find("end", &sites);
	assert_int_equal(sites.object_sites, 0);
	assert_int_equal(sites.found[INLINE_OBJECT], 1);
	assert_object(&sites, &calls, "at_newref", ABI_REG_DI, 0);
	inline_sites_free(&sites);
}

/* From 3.13 on the reference tracer is called at an object's end, too. */
static void test_objects_tracer(void **state)
{
	(void)state;
	struct inline_sites sites;

	objects_find("newref_tracer", 0, &sites);
	assert_int_equal(sites.found[INLINE_OBJECT], 2);
	assert_object(&sites, &objects, "at_newref_tracer", ABI_REG_DI, 0);
	assert_object(&sites, &objects, "at_copy_tracer", ABI_REG_R12, 0);
	assert_int_equal(sites.given_up_count, 0);
	inline_sites_free(&sites);
}

/* 3.8 has no such function. The function that most of the slow paths call is used. */
static void test_objects_through_slot(void **state)
{
	(void)state;
	struct inline_sites sites;

	objects_find(NULL, TRACING_SLOT, &sites);
	assert_int_equal(sites.found[INLINE_OBJECT], 2);
	assert_object(&sites, &objects, "at_copy_slot", ABI_REG_BX, 0);
	assert_object(&sites, &objects, "at_second_copy_slot", ABI_REG_R13, 0);
	inline_sites_free(&sites);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects),        cmocka_unit_test(test_new_ways),
		cmocka_unit_test(test_new_counted),    cmocka_unit_test(test_object_calls),
		cmocka_unit_test(test_objects_tracer), cmocka_unit_test(test_objects_through_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
