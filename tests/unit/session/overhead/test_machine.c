/* SPDX-License-Identifier: Apache-2.0 */
/* What all processes together may take. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ranges.h"
#include "session/overhead/machine.h"
#include "windows_trial.h"

#define MANY 500

/* With few processes each has its own budget. */
static void test_enough(void **state)
{
	static const double rates[] = {1, 0.5, 0, 2};

	(void)state;
	assert_true(machine_part(rates, 4, 0.01, 0.05) == 1);
	assert_true(machine_part(rates, 0, 0.01, 0.05) == 1);
}

/* The same part for each, such that the sum is the limit. Idle ones take nothing from others. */
static void test_divided(void **state)
{
	double rates[MANY], part, sum = 0;

	(void)state;
	for (size_t i = 0; i < MANY; i++)
		rates[i] = i < 100 ? 1 : i < 200 ? 0.5 : 0.0001;
	part = machine_part(rates, MANY, 0.01, 0.05);
	for (size_t i = 0; i < MANY; i++)
		sum += fmin(rates[i], 0.01 * part * fmax(rates[i], WINDOWS_RATE_MIN));
	assert_true(sum <= 0.05 && sum > 0.0499);
	assert_true(part < 0.05);
	assert_true(machine_part(rates + 200, MANY - 200, 0.01, 0.05) == 1);
}

/* However little is left, nobody is left out. */
static void test_tiny(void **state)
{
	double rates[MANY];

	(void)state;
	for (size_t i = 0; i < MANY; i++)
		rates[i] = 64;
	assert_true(machine_part(rates, MANY, 1, 1e-12) > 0);
}

/* Windows become rarer by the part, beyond the longest pause, too, and take no more. */
static void test_rarer(void **state)
{
	static const struct target target = {1, 70 * MS, 10 * MS, 1, 0};
	static const double parts[] = {0, 0.5, 0.1, 0.01};
	(void)state;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		struct run run = {.windows = {.budget = 0.01, .part = parts[i], .random = i},
				  .now_ns = S};
		double part = parts[i] > 0 ? parts[i] : 1, sum = 0;

		assert_int_equal(run_until(&run, &target, 20000 * S), 0);
		for (size_t k = 2; k < run.count; k++)
			sum += run.loss_ns[k];
		assert_true(run.count >= 5);
		assert_true(sum <= 0.01 * part * 20000e9 * 1.05);
		assert_true(sum >= 0.01 * part * 20000e9 * 0.7);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_enough),
		cmocka_unit_test(test_divided),
		cmocka_unit_test(test_tiny),
		cmocka_unit_test(test_rarer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
