/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of --overhead, with simulated clocks and costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ranges.h"
#include "session/overhead/governor.h"

#define OVER 5 /* periods at six times the budget until the debt is too large */

struct run {
	struct governor governor;
	uint64_t now_ns;
};

/* With a sample, if there is a heap: there are no windows then. */
static void run_begin(struct run *run, enum event_mode mode, int heap)
{
	const struct governor_step first = {.mode = mode, .sample_bytes = heap ? 512 << 10 : 0};

	*run = (struct run){.now_ns = 1000};
	governor_plan(&run->governor, 0.05, &first, heap);
}

/* One period in which that share of half a CPU was spent in probes. */
static int period(struct run *run, double share)
{
	const struct governor_period period = {
		.now_ns = run->now_ns += GOVERNOR_PERIOD_NS,
		.elapsed_ns = GOVERNOR_PERIOD_NS,
		.cpu_ns = GOVERNOR_PERIOD_NS / 2,
		.cost_ns = share * (double)GOVERNOR_PERIOD_NS / 2,
	};

	return governor_judge(&run->governor, &period);
}

/* Runs until the step changes. Returns the number of periods, at most limit. */
static unsigned int periods_until_change(struct run *run, double share, unsigned int limit)
{
	for (unsigned int i = 1; i <= limit; i++)
		if (period(run, share))
			return i;
	return 0;
}

static enum event_mode mode_of(const struct run *run)
{
	return run->governor.steps[run->governor.step].mode;
}

static void test_narrows(void **state)
{
	static const enum event_mode order[] = {EVENT_MODE_CENSUS, EVENT_MODE_GROWTH,
						EVENT_MODE_OFF};
	struct run run;
	(void)state;

	run_begin(&run, EVENT_MODE_EXACT, 1);
	assert_int_equal(mode_of(&run), EVENT_MODE_EXACT);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(periods_until_change(&run, 0.3, 100), OVER);
		assert_int_equal(mode_of(&run), order[i]);
	}
	/* There is no step below off. */
	assert_int_equal(periods_until_change(&run, 0.3, 1000), 0);
}

/*
 * Single periods over the budget are accepted as long as the periods between them make up for it.
 */
static void test_debt(void **state)
{
	struct run run;
	(void)state;

	run_begin(&run, EVENT_MODE_EXACT, 1);
	for (int i = 0; i < 100; i++)
		assert_int_equal(period(&run, i % 10 == 9 ? 0.3 : 0.02), 0);
	assert_int_not_equal(periods_until_change(&run, 0.06, 1000), 0);
	assert_int_equal(mode_of(&run), EVENT_MODE_CENSUS);
	/* a cost equal to the budget is within it */
	assert_int_equal(periods_until_change(&run, 0.05, 1000), 0);
}

/* An idle process is no evidence, whatever the probes' share of its little CPU time. */
static void test_idle(void **state)
{
	struct run run;
	(void)state;

	run_begin(&run, EVENT_MODE_CENSUS, 1);
	for (int i = 0; i < 100; i++) {
		const struct governor_period idle = {.now_ns = run.now_ns += GOVERNOR_PERIOD_NS,
						     .elapsed_ns = GOVERNOR_PERIOD_NS,
						     .cpu_ns = 100000,
						     .cost_ns = 90000};

		assert_int_equal(governor_judge(&run.governor, &idle), 0);
	}
	assert_int_equal(mode_of(&run), EVENT_MODE_CENSUS);
}

/*
 * The governor tries a step up again after a hold time that doubles. It starts with the first hold
 * time again when a step up has held.
 */
static void test_widens(void **state)
{
	const unsigned int first = GOVERNOR_HOLD_NS / GOVERNOR_PERIOD_NS;
	unsigned int hold = first;
	struct run run;
	(void)state;

	run_begin(&run, EVENT_MODE_CENSUS, 1);
	periods_until_change(&run, 0.3, 100);
	assert_int_equal(mode_of(&run), EVENT_MODE_GROWTH);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(periods_until_change(&run, 0.01, 10000), hold);
		assert_int_equal(mode_of(&run), EVENT_MODE_CENSUS);
		assert_uint_in_range(periods_until_change(&run, 0.3, 100), 1, OVER);
		hold *= 2;
	}
	/* A cost above half of the budget leaves no room for a step up. */
	assert_int_equal(periods_until_change(&run, 0.03, 10000), 0);
	assert_int_equal(periods_until_change(&run, 0.01, 10000), 1);
	assert_int_equal(mode_of(&run), EVENT_MODE_CENSUS);
	/* The longest hold time is bounded. */
	for (int i = 0; i < 10; i++) {
		periods_until_change(&run, 0.3, 100);
		periods_until_change(&run, 0.01, 100000);
	}
	assert_true(run.governor.hold_ns <= GOVERNOR_HOLD_MAX_NS);
}

static void test_held(void **state)
{
	const unsigned int first = GOVERNOR_HOLD_NS / GOVERNOR_PERIOD_NS;
	struct run run;
	(void)state;

	run_begin(&run, EVENT_MODE_EXACT, 1);
	periods_until_change(&run, 0.3, 100);
	periods_until_change(&run, 0.3, 100);
	assert_int_equal(mode_of(&run), EVENT_MODE_GROWTH);
	assert_int_equal(periods_until_change(&run, 0.01, 1000), first);
	periods_until_change(&run, 0.3, 100); /* growth again, and 2 * first */
	assert_int_equal(periods_until_change(&run, 0.01, 1000), 2 * first);
	/* Census holds for the same time, and exact is tried. */
	assert_int_equal(periods_until_change(&run, 0.01, 1000), 2 * first);
	assert_int_equal(mode_of(&run), EVENT_MODE_EXACT);
	assert_int_equal(run.governor.hold_ns, GOVERNOR_HOLD_NS);
}

/*
 * A process that needs cpus CPUs, measured whenever the governor requests it, at a step whose
 * probes take share of its time. Returns the probes' cost until the step changes; *first: the time
 * of the first measurement.
 */
static double cost_until_change(struct run *run, double cpus, double share, uint64_t *first)
{
	double cost = 0;

	*first = governor_wait(&run->governor, run->now_ns);
	for (int i = 0; i < 1000; i++) {
		uint64_t wait_ns = governor_wait(&run->governor, run->now_ns);
		/* With probes the same work takes more CPU time. */
		double cpu = cpus / (1 - share) < 1 ? cpus / (1 - share) : 1;
		const struct governor_period period = {
			.now_ns = run->now_ns += wait_ns,
			.elapsed_ns = wait_ns,
			.cpu_ns = (uint64_t)(cpu * (double)wait_ns),
			.cost_ns = share * cpu * (double)wait_ns,
		};

		cost += period.cost_ns;
		if (governor_judge(&run->governor, &period))
			return cost;
	}
	fail_msg("it stays with %.0f %%", share * 100);
	return 0;
}

/* A try never costs more than the budget for ten seconds, including the cost of the changes. */
static void test_try(void **state)
{
	static const double budgets[] = {0.01, 0.05, 0.2}, rates[] = {0.05, 0.2, 1},
			    shares[] = {0.5, 0.9, 0.99};
	(void)state;

	for (size_t i = 0; i < 27; i++) {
		const double budget = budgets[i % 3], cpus = rates[i / 3 % 3],
			     share = shares[i / 9];
		double allowed = budget * cpus * GOVERNOR_WINDOW_NS, cost;
		struct run run;
		uint64_t first;

		run_begin(&run, EVENT_MODE_CENSUS, 1);
		run.governor.budget = budget;
		cost_until_change(&run, cpus, share, &first);
		assert_int_equal(first, GOVERNOR_FIRST_NS);
		assert_int_equal(mode_of(&run), EVENT_MODE_GROWTH);
		while (mode_of(&run) == EVENT_MODE_GROWTH) {
			const struct governor_period period = {
				.now_ns = run.now_ns += GOVERNOR_PERIOD_NS,
				.elapsed_ns = GOVERNOR_PERIOD_NS,
				.cpu_ns = (uint64_t)(cpus * GOVERNOR_PERIOD_NS),
			};

			governor_judge(&run.governor, &period);
		}
		cost = allowed / 10;
		governor_changed(&run.governor, run.now_ns, cost);
		cost += cost_until_change(&run, cpus, share, &first);
		assert_true(first <= GOVERNOR_FIRST_NS);
		assert_int_equal(mode_of(&run), EVENT_MODE_GROWTH);
		if (cost > allowed)
			fail_msg("budget %g, %g CPUs, share %g: %.0f ms of %.0f", budget, cpus,
				 share, cost / 1e6, allowed / 1e6);
	}
}

/* A process that is mostly idle is not narrowed because of a little work. */
static void test_burst(void **state)
{
	struct run run;
	(void)state;

	run_begin(&run, EVENT_MODE_EXACT, 1);
	for (int i = 0; i < 40; i++) {
		const struct governor_period idle = {.now_ns = run.now_ns += GOVERNOR_PERIOD_NS,
						     .elapsed_ns = GOVERNOR_PERIOD_NS};

		assert_int_equal(governor_judge(&run.governor, &idle), 0);
	}
	assert_int_equal(period(&run, 0.9), 0);
	assert_int_equal(mode_of(&run), EVENT_MODE_EXACT);
}

/* Without a heap that can be walked: ever smaller samples. */
static void test_samples(void **state)
{
	struct run run;
	uint64_t last = 0;
	size_t steps = 0;
	(void)state;

	run_begin(&run, EVENT_MODE_EXACT, 0);
	/* Windows first; where they are possible, and too expensive, so is a sample. */
	assert_int_equal(periods_until_change(&run, 0.3, 100), OVER);
	assert_int_equal(mode_of(&run), EVENT_MODE_WINDOWS);
	governor_narrow(&run.governor, run.now_ns);
	assert_int_equal(mode_of(&run), EVENT_MODE_OFF);
	run_begin(&run, EVENT_MODE_EXACT, 0);
	assert_int_equal(periods_until_change(&run, 0.3, 100), OVER);
	governor_refuse(&run.governor);
	assert_int_equal(run.governor.steps[run.governor.step].sample_bytes, 64 << 10);
	last = 64 << 10;
	for (steps = 1;;) {
		assert_int_equal(periods_until_change(&run, 0.3, 100), OVER);
		if (mode_of(&run) == EVENT_MODE_OFF)
			break;
		assert_int_equal(mode_of(&run), EVENT_MODE_EXACT);
		assert_true(run.governor.steps[run.governor.step].sample_bytes > last);
		last = run.governor.steps[run.governor.step].sample_bytes;
		steps++;
	}
	assert_int_equal(steps, 3);
}

/* A mode that is not available is no step; off always is one. */
static void test_refused(void **state)
{
	struct run run;
	(void)state;

	run_begin(&run, EVENT_MODE_CENSUS, 1);
	periods_until_change(&run, 0.3, 100);
	governor_refuse(&run.governor);
	assert_int_equal(mode_of(&run), EVENT_MODE_OFF);
	governor_refuse(&run.governor);
	assert_int_equal(mode_of(&run), EVENT_MODE_OFF);
	assert_int_not_equal(periods_until_change(&run, 0, 1000), 0);
	assert_int_equal(mode_of(&run), EVENT_MODE_CENSUS);
}

/*
 * Windows are three steps, with less and less between them. There is no step up from them: the
 * table would be another one.
 */
static void test_windows(void **state)
{
	static const enum event_mode order[] = {EVENT_MODE_CENSUS,  EVENT_MODE_WINDOWS,
						EVENT_MODE_WINDOWS, EVENT_MODE_WINDOWS,
						EVENT_MODE_GROWTH,  EVENT_MODE_OFF};
	const struct governor_step first = {.mode = EVENT_MODE_EXACT};
	struct run run = {.now_ns = 1000};
	(void)state;

	governor_plan(&run.governor, 0.05, &first, 1);
	for (size_t i = 0; i < 6; i++) {
		assert_int_equal(periods_until_change(&run, 0.3, 100), OVER);
		assert_int_equal(mode_of(&run), order[i]);
		assert_int_equal(run.governor.steps[run.governor.step].between,
				 order[i] == EVENT_MODE_WINDOWS ? i - 1 : 0);
		if (order[i] == EVENT_MODE_WINDOWS)
			assert_int_equal(periods_until_change(&run, 0, 10000), 0);
	}
	assert_int_not_equal(periods_until_change(&run, 0, 10000), 0);
	assert_int_equal(mode_of(&run), EVENT_MODE_GROWTH);
	assert_int_not_equal(periods_until_change(&run, 0, 10000), 0);
	assert_int_equal(mode_of(&run), EVENT_MODE_WINDOWS);
	/* No window fits in the budget. */
	governor_narrow(&run.governor, run.now_ns);
	assert_int_equal(mode_of(&run), EVENT_MODE_GROWTH);
}

static void run_early(struct run *run)
{
	const struct governor_step first = {.mode = EVENT_MODE_EXACT};

	*run = (struct run){.now_ns = 1000};
	governor_plan(&run->governor, 0.05, &first, 1);
	assert_int_equal(governor_begin_early(&run->governor, 0.5), 1);
	assert_int_equal(mode_of(run), EVENT_MODE_WINDOWS);
	assert_int_equal(run->governor.steps[run->governor.step].between, GOVERNOR_BETWEEN_LARGE);
}

/* A window of 50 ms in which it ran for so long, and the probes took that share. */
static int window(struct run *run, uint64_t cpu_ns, double share)
{
	const struct governor_period window = {
		.now_ns = run->now_ns += GOVERNOR_FIRST_NS,
		.elapsed_ns = 50000000,
		.cpu_ns = cpu_ns,
		.cost_ns = share * (double)cpu_ns,
	};

	return governor_first_window(&run->governor, &window);
}

/* A busy process begins in windows. If the first one shows that the requested mode is cheap, that
 * follows; later windows do not matter. */
static void test_early(void **state)
{
	struct run run;
	(void)state;

	run_early(&run);
	assert_int_equal(window(&run, 40000000, 0.9), 0);
	assert_int_equal(window(&run, 40000000, 0), 0);
	assert_int_equal(mode_of(&run), EVENT_MODE_WINDOWS);

	/* Before the first window, other probes may take a twentieth of the budget for 10 s. */
	run_early(&run);
	assert_int_equal(periods_until_change(&run, 0.3, 100), 1);
	assert_int_equal(run.governor.steps[run.governor.step].between, GOVERNOR_BETWEEN_POOLS);

	run_early(&run);
	assert_int_equal(window(&run, 40000000, 0.02), 1);
	assert_int_equal(mode_of(&run), EVENT_MODE_EXACT);
	assert_int_not_equal(periods_until_change(&run, 0.3, 100), 0);
	assert_int_equal(mode_of(&run), EVENT_MODE_CENSUS);
}

/*
 * Windows of an idle process say nothing about the requested mode. It is tried after the first one
 * in which the process is busy, unless that comes late.
 */
static void test_early_idle(void **state)
{
	struct run run;
	(void)state;

	run_early(&run);
	for (int i = 0; i < 20; i++)
		assert_int_equal(window(&run, i * 100000, i % 2), 0);
	assert_int_equal(window(&run, 3000000, 0.01), 1);
	assert_int_equal(mode_of(&run), EVENT_MODE_EXACT);

	run_early(&run);
	assert_int_equal(period(&run, 0), 0);
	run.now_ns += 2 * GOVERNOR_WINDOW_NS;
	assert_int_equal(window(&run, 3000000, 0.01), 0);
	assert_int_equal(mode_of(&run), EVENT_MODE_WINDOWS);
}

/* Of a process that was idle, and of one whose probes are all in place, a few milliseconds are
 * enough: they are noticed between two measurements. */
static void test_exceeded(void **state)
{
	static const double MS = 1e6;
	struct run run;
	(void)state;

	run_begin(&run, EVENT_MODE_CENSUS, 1);
	assert_int_equal(governor_is_exceeded(&run.governor, 100 * MS, run.now_ns), 0);
	assert_int_equal(governor_is_exceeded(&run.governor, 150 * MS, run.now_ns), 1);
	governor_be_careful(&run.governor, 0);
	assert_int_equal(governor_is_exceeded(&run.governor, 2 * MS, run.now_ns), 0);
	assert_int_equal(governor_is_exceeded(&run.governor, 10 * MS, run.now_ns), 1);
	assert_int_equal(period(&run, 0.9), 1);
	assert_int_equal(mode_of(&run), EVENT_MODE_GROWTH);
}

/* There is no step in windows for a sample. */
static void test_early_none(void **state)
{
	struct run run;
	(void)state;

	run_begin(&run, EVENT_MODE_CENSUS, 1);
	assert_int_equal(governor_begin_early(&run.governor, 0.5), 0);
	assert_int_equal(mode_of(&run), EVENT_MODE_CENSUS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_narrows),    cmocka_unit_test(test_debt),
		cmocka_unit_test(test_idle),       cmocka_unit_test(test_widens),
		cmocka_unit_test(test_held),       cmocka_unit_test(test_samples),
		cmocka_unit_test(test_refused),    cmocka_unit_test(test_try),
		cmocka_unit_test(test_burst),      cmocka_unit_test(test_windows),
		cmocka_unit_test(test_early),      cmocka_unit_test(test_early_none),
		cmocka_unit_test(test_early_idle), cmocka_unit_test(test_exceeded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
