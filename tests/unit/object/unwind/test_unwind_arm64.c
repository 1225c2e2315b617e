/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of arm64's frames, where the return address is a register that functions store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "object/unwind/calls.h"
#include "object/unwind/rule.h"

#define FRAME 29
#define STACK 31

static struct cfi_state state_of(struct cfi_saved frame, struct cfi_saved ra)
{
	return (struct cfi_state){.cfa = CFI_CFA_REGISTER,
				  .cfa_register = STACK,
				  .cfa_offset = 48,
				  .rbp = frame,
				  .ra = ra,
				  .registers = {FRAME, STACK, CFI_RA_ARM64}};
}

static void expect_rule(struct cfi_saved frame, struct cfi_saved ra, struct abi_unwind_rule wanted)
{
	struct cfi_state state = state_of(frame, ra);

	assert_true(unwind_rule_equal(cfi_state_rule(&state), wanted));
}

static void test_return_address(void **state)
{
	const struct cfi_saved same = {.kind = CFI_SAME}, other = {.kind = CFI_OTHER},
			       undefined = {.kind = CFI_UNDEFINED},
			       at_48 = {.kind = CFI_AT_CFA, .offset = -48},
			       at_40 = {.kind = CFI_AT_CFA, .offset = -40},
			       at_16 = {.kind = CFI_AT_CFA, .offset = -16};

	(void)state;
	/* stp x29, x30, [sp, #-48]! */
	expect_rule(at_48, at_40,
		    (struct abi_unwind_rule){.kind = ABI_UNWIND_RSP, .cfa = 48, .rbp = -6});
	/* str x30, [sp, #-48]! */
	expect_rule(same, at_48,
		    (struct abi_unwind_rule){.kind = ABI_UNWIND_RSP,
					     .cfa = 48,
					     .rbp = -6,
					     .flags = ABI_UNWIND_RETURN_ALONE});
	/* not beside each other; a leaf function, in which it is not stored */
	expect_rule(at_48, at_16, UNWIND_RULE_ODD);
	expect_rule(same, other, UNWIND_RULE_ODD);
	expect_rule(same, undefined, (struct abi_unwind_rule){.kind = ABI_UNWIND_END});
}

static void test_calls(void **state)
{
	static const uint32_t words[] = {0xd503201f, 0x94000010, 0xd63f0060, 0xd4000001,
					 0x14000002};
	const struct unwind_codes codes = {
		.parts = {{.vaddr = 0x1000, .size = sizeof(words), .bytes = (const void *)words}},
		.count = 1,
		.is_arm64 = 1};

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		assert_int_equal(unwind_calls_within(&codes, &codes.parts[0], 0x1000 + 4 * i,
						     0x1004 + 4 * i),
				 i >= 1 && i <= 3); /* bl, blr, svc */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_return_address),
		cmocka_unit_test(test_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
