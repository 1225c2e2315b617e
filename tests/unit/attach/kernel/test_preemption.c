/* SPDX-License-Identifier: Apache-2.0 */
/* Whether programs may be preempted, as kernels say it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "attach/kernel/preemption.h"

static void test_models(void **state)
{
	static const struct {
		const char *version, *models, *command_line;
		int full;
	} cases[] = {
		/* Debian 12's */
		{"#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1", "none (voluntary) full \n", "", 0},
		{"#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1", "none voluntary (full) \n",
		 "preempt=voluntary", 1},
		{"#1 SMP PREEMPT_DYNAMIC Debian 6.12.1", "none voluntary full (lazy) \n", NULL, 1},
		/* debugfs is not mounted */
		{"#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1", NULL, "quiet preempt=full", 1},
		{"#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1", NULL, "quiet preempt=none", 0},
		{"#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1", NULL, "quiet", 1},
		{"#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1", NULL, NULL, 1},
		{"#1 SMP PREEMPT_DYNAMIC Debian 6.1.140-1", "none", NULL, 1},
		/* one model */
		{"#45-Ubuntu SMP Fri", NULL, "quiet", 0},
		{"#45-Ubuntu SMP PREEMPT Fri", NULL, "preempt=none", 1},
		{"#45-Ubuntu SMP PREEMPT_RT Fri", NULL, NULL, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (preemption_is_full(cases[i].version, cases[i].models, cases[i].command_line) !=
		    cases[i].full)
			fail_msg("case %zu", i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_models),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
