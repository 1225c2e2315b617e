/* SPDX-License-Identifier: Apache-2.0 */
/* arm64's instructions, and at which one of a function its probe is placed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "abi/events.h"
#include "arm64_code.h"
#include "object/insn/machine.h"
#include "object/insn/value.h"
#include "probe/place/function_entry.h"

#define VADDR 0x16a580
#define NONE  ABI_REG_COUNT

static const struct probe_spec malloc_public = {
	"PyObject_Malloc", ABI_OP_MALLOC, EVENT_API_OBJ, {ABI_REG_X0, NONE, NONE}, 1};
static const struct probe_spec realloc_implementation = {
	"_PyObject_Realloc", ABI_OP_REALLOC, EVENT_API_OBJ, {ABI_REG_X1, ABI_REG_X2, NONE}, 1};
static const struct probe_spec free_public = {
	"PyObject_Free", ABI_OP_FREE, EVENT_API_OBJ, {ABI_REG_X0, NONE, NONE}, 0};

static struct plan_site site_of(const struct probe_spec *spec, const char *text)
{
	struct arm64_code code = arm64_assemble(text);
	struct plan_site site = {0};

	assert_int_equal(
		function_entry_site(&machine_arm64, spec, code.bytes, code.count, VADDR, &site), 0);
	assert_int_equal(site.vaddr, VADDR + site.in_function);
	return site;
}

static void expect_site(const struct plan_site *site, int emulated, uint32_t at, uint32_t r0,
			uint32_t r1)
{
	assert_int_equal(site->emulated, emulated);
	assert_int_equal(site->in_function, at);
	assert_int_equal(site->cookie >> 16 & 0xff, r0);
	assert_int_equal(site->cookie >> 24 & 0xff, r1);
}

/* The first instruction that the kernel simulates, at which the argument is intact. */
static void test_simulated(void **state)
{
	struct plan_site site;

	(void)state;
	site = site_of(&malloc_public, "mov x3, x0; tbnz x0, #63, 1f; adrp x1, 0; 1: ret");
	expect_site(&site, 1, 4, ABI_REG_X0, NONE);
	assert_string_equal(site.why, "tbnz at +4 is emulated; bytes still in x0");
	site = site_of(&malloc_public, "mov x19, x0; mov x0, #1; cbz x19, 1f; nop; 1: ret");
	expect_site(&site, 1, 8, 19, NONE);
	site = site_of(&realloc_implementation, "adrp x0, 0; ldr x0, [x0]; ret");
	expect_site(&site, 1, 0, ABI_REG_X1, ABI_REG_X2);
	/* nop, bti and paciasp are single-stepped */
	site = site_of(&free_public, "bti c; cbz x0, 1f; nop; 1: ret");
	expect_site(&site, 1, 4, ABI_REG_X0, NONE);
	site = site_of(&free_public, "mov w0, w0; ret");
	expect_site(&site, 0, 0, ABI_REG_X0, NONE);
	/* a 32-bit move truncates */
	site = site_of(&free_public, "mov w1, w0; mov x0, #0; ret");
	expect_site(&site, 0, 0, ABI_REG_X0, NONE);
}

/* A return probe replaces the link register: at the latest before it is stored or signed. */
static void test_link_register(void **state)
{
	static const char *const stored[] = {
		"stp x29, x30, [sp, #-32]!; adrp x1, 0; ret",
		"paciasp; adrp x1, 0; ret",
		"mov x9, x30; adrp x1, 0; ret",
		"sub sp, sp, #32; adrp x1, 0; ret",
		"str x19, [sp, #-16]!; adrp x1, 0; ret",
	};
	struct plan_site site;

	(void)state;
	for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++) {
		site = site_of(&malloc_public, stored[i]);
		expect_site(&site, 0, 0, ABI_REG_X0, NONE);
		assert_non_null(strstr(site.why, "before the stack moves"));
	}
	site = site_of(&free_public, stored[0]);
	expect_site(&site, 1, 4, ABI_REG_X0, NONE);
}

/* A loop to a later instruction than the entry would hit the probe more than once. */
static void test_loop(void **state)
{
	struct plan_site site = site_of(&free_public, "mov x2, x0; 1: mov x3, x0; cbz x2, 1b; ret");

	(void)state;
	expect_site(&site, 0, 0, ABI_REG_X0, NONE);
	site = site_of(&free_public, "1: mov x2, x0; mov x3, x0; cbz x2, 1b; ret");
	expect_site(&site, 1, 8, ABI_REG_X0, NONE);
}

/* Which registers an instruction writes: whatever is missing here would give wrong arguments. */
static void test_written(void **state)
{
	static const struct {
		const char *text;
		uint32_t written;
	} cases[] = {
		{"add x1, x0, #8", 1u << 1},
		{"add sp, sp, #32", 1u << ABI_REG_XSP},
		{"cmp x0, #512", 0},
		{"subs x4, x0, x1", 1u << 4},
		{"ldr x3, [x2], #8", 1u << 3 | 1u << 2},
		{"str x3, [x2, #8]!", 1u << 2},
		{"stp x29, x30, [sp, #-32]!", 1u << ABI_REG_XSP},
		{"ldp x19, x20, [sp, #16]", 3u << 19},
		{"ldp x29, x30, [sp], #32", 3u << 29 | 1u << ABI_REG_XSP},
		{"stp q0, q1, [x3], #32", 1u << 3},
		{"ldr q0, [x3]", 0},
		{"ldxr x5, [x6]", 1u << 5},
		{"madd x7, x0, x1, x2", 1u << 7},
		{"csel x8, x0, x1, ne", 1u << 8},
		{"ccmp x0, #1, #4, ne", 0},
		{"movi v0.2d, #0", 0},
		{"fmov x9, d0", 1u << 9},
		{"umov w10, v0.s[1]", 1u << 10},
		{"fcvtzs x11, d1", 1u << 11},
		{"mrs x12, tpidr_el0", 1u << 12},
		{"and x13, x0, #0xfffffffffffffff0", 1u << 13},
		{"and sp, x0, #0xfffffffffffffff0", 1u << ABI_REG_XSP},
		{"tst x0, #15", 0},
		{"ubfx x14, x0, #4, #6", 1u << 14},
		{"adrp x15, 0", 1u << 15},
		{"ldadd x1, x2, [x3]", 1u << 2},
		{"paciasp", 1u << 30},
		{"bti c", 0},
		{"svc #0", 1u << 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arm64_code code = arm64_assemble(cases[i].text);
		struct inline_decoder decoder = {0};
		struct inline_insn insn;
		uint32_t written;

		assert_int_equal(inline_decoder_open(&decoder, &machine_arm64), 0);
		assert_int_equal(inline_decode(&decoder, code.bytes, code.count, VADDR, &insn), 4);
		written = machine_arm64.registers_written(decoder.capstone, decoder.insn);
		/* More than it writes only costs a site. */
		if ((written & cases[i].written) != cases[i].written ||
		    __builtin_popcount(written & ~cases[i].written) > 2)
			fail_msg("%s writes %x, not %x", cases[i].text, cases[i].written, written);
		inline_decoder_close(&decoder);
	}
}

static void decode(const char *text, struct inline_insn *out)
{
	struct arm64_code code = arm64_assemble(text);
	struct inline_decoder decoder = {0};

	assert_int_equal(inline_decoder_open(&decoder, &machine_arm64), 0);
	assert_int_equal(inline_decode(&decoder, code.bytes, code.count, VADDR, out), 4);
	inline_decoder_close(&decoder);
}

static void test_operations(void **state)
{
	struct inline_insn insn;

	(void)state;
	decode("ldr x1, [x0, #16]", &insn);
	assert_true(insn.op == INLINE_LOAD && insn.dst == 1 && insn.base == 0 && insn.value == 16);
	decode("ldur w1, [x0, #-4]", &insn);
	assert_true(insn.op == INLINE_LOAD_32 && insn.base == 0 && insn.value == -4);
	decode("str x5, [x6, #8]", &insn);
	assert_true(insn.op == INLINE_STORE && insn.src == 5 && insn.base == 6 && insn.value == 8);
	decode("str xzr, [x6]", &insn);
	assert_true(insn.op == INLINE_STORE_CONST && insn.target == 0);
	decode("cmp x1, x2", &insn);
	assert_true(insn.op == INLINE_COMPARE && insn.dst == 1 && insn.src == 2);
	decode("str wzr, [x6]", &insn);
	assert_true(insn.op == INLINE_STORE_CONST && insn.width == 4 && insn.target == 0);
	decode("mov xzr, x5", &insn);
	assert_true(insn.op == INLINE_OTHER && insn.dst == NONE);
	decode("cmp x1, x2, lsl #2", &insn);
	assert_true(insn.op == INLINE_COMPARE && insn.src == 2 && insn.value == 2);
	decode("cmp x1, #512", &insn);
	assert_true(insn.op == INLINE_COMPARE_CONST && insn.dst == 1 && insn.value == 512);
	decode("cbz x3, .+16", &insn);
	assert_true(insn.op == INLINE_BRANCH && insn.src == 3 && insn.equal && !insn.unequal);
	decode("cbnz w3, .+16", &insn);
	assert_true(insn.op == INLINE_BRANCH && insn.src == 3 && !insn.equal && insn.unequal);
	decode("b.eq .+16", &insn);
	assert_true(insn.op == INLINE_BRANCH && insn.equal && insn.target == VADDR + 16);
	decode("b.hi .-8", &insn);
	assert_true(insn.op == INLINE_BRANCH && insn.order == INLINE_ABOVE &&
		    insn.target == VADDR - 8);
	decode("b .+32", &insn);
	assert_true(insn.op == INLINE_JUMP && insn.target == VADDR + 32);
	decode("bl .-32", &insn);
	assert_true(insn.op == INLINE_CALL && insn.target == VADDR - 32);
	decode("blr x3", &insn);
	assert_true(insn.op == INLINE_CALL_SLOT && insn.src == 3);
	decode("br x17", &insn);
	assert_true(insn.op == INLINE_JUMP_SLOT && insn.src == 17);
	decode("ret", &insn);
	assert_true(insn.op == INLINE_END && insn.emulated);
	decode("sub x0, x1, #1", &insn);
	assert_true(insn.op == INLINE_ADD && insn.dst == 0 && insn.src == 1 && insn.value == -1);
	decode("mov x0, #0x10000", &insn);
	assert_true(insn.op == INLINE_CONST && insn.value == 0x10000);
	decode("lsr x0, x0, #4", &insn);
	assert_true(insn.op == INLINE_SHIFT && insn.dst == 0 && insn.value == 4);
	decode("ubfx x2, x0, #4, #8", &insn);
	assert_true(insn.op == INLINE_SHIFT && insn.dst == 2 && insn.src == 0 && insn.value == 4);
	decode("lsl x0, x0, #3", &insn);
	assert_true(insn.op == INLINE_SHIFT_LEFT && insn.dst == 0 && insn.value == 3);
	decode("ubfiz x2, x3, #1, #28", &insn);
	assert_true(insn.op == INLINE_SHIFT_LEFT && insn.src == 3 && insn.value == 1);
	decode("and x2, x0, #0xffffffffffffc000", &insn);
	assert_true(insn.op == INLINE_MASK && insn.dst == 2 && insn.src == 0 &&
		    insn.value == -16384);
	decode("and w2, w0, #0xfffffff0", &insn);
	assert_true(insn.op == INLINE_MASK && (int32_t)insn.value == -16);
	decode("and x2, x0, #0x5555555555555555", &insn);
	assert_true(insn.op == INLINE_OTHER);
	decode("umull x0, w1, w2", &insn);
	assert_true(insn.op == INLINE_TRIPLE && insn.src == 1 && insn.base == 2);
	decode("add x0, x1, x1, lsl #1", &insn);
	assert_true(insn.op == INLINE_TRIPLE && insn.src == 1 && insn.base == NONE);
	decode("add x0, x1, x2, lsl #1", &insn);
	assert_true(insn.op == INLINE_OTHER);
}

/* A stub of the procedure linkage table: the slot that it jumps through. */
static void test_slot(void **state)
{
	struct arm64_code code =
		arm64_assemble("adr x16, .+4096; add x16, x16, #64; ldr x17, [x16, #8]; br x17");
	struct inline_decoder decoder = {0};
	struct inline_state values;
	struct inline_insn insn;

	(void)state;
	assert_int_equal(inline_decoder_open(&decoder, &machine_arm64), 0);
	inline_state_init(&values);
	for (size_t at = 0; at < code.count; at += insn.bytes) {
		assert_int_equal(inline_decode(&decoder, code.bytes + at, code.count - at,
					       VADDR + at, &insn),
				 4);
		if (insn.op == INLINE_JUMP_SLOT)
			break;
		inline_state_step(&values, &insn);
	}
	assert_int_equal(inline_state_slot(&values, insn.src), VADDR + 4096 + 64 + 8);
	inline_decoder_close(&decoder);
}

/* What the kernel refuses to probe. */
static void test_may_be_probed(void **state)
{
	static const struct {
		const char *text;
		bool may;
	} cases[] = {
		{"nop", true},       {"bti c", true},          {"paciasp", true},
		{"autiasp", false},  {"retaa", false},         {"ret", true},
		{"svc #0", false},   {"ldxr x0, [x1]", false}, {"ldr q0, .", false},
		{"ldr x0, .", true}, {"mov x0, x1", true},     {"mrs x0, tpidr_el0", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arm64_code code = arm64_assemble(cases[i].text);
		struct inline_decoder decoder = {0};
		struct inline_insn insn;

		assert_int_equal(inline_decoder_open(&decoder, &machine_arm64), 0);
		assert_int_equal(inline_decode(&decoder, code.bytes, code.count, VADDR, &insn), 4);
		if (machine_arm64.may_be_probed(decoder.insn) != cases[i].may)
			fail_msg("%s", cases[i].text);
		inline_decoder_close(&decoder);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_simulated),     cmocka_unit_test(test_link_register),
		cmocka_unit_test(test_loop),          cmocka_unit_test(test_written),
		cmocka_unit_test(test_operations),    cmocka_unit_test(test_slot),
		cmocka_unit_test(test_may_be_probed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
