/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of windows, with simulated targets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "ranges.h"
#include "windows_trial.h"

/* The most that was lost in any 10 s, of windows from the given one on. */
static double worst(const struct run *run, size_t first)
{
	double most = 0;

	for (size_t i = first; i < run->count; i++) {
		double sum = 0;

		for (size_t k = i;
		     k < run->count && run->at[k].start_ns < run->at[i].start_ns + 10 * S; k++)
			sum += run->loss_ns[k];
		most = sum > most ? sum : most;
	}
	return most;
}

static void test_budget(void **state)
{
	static const struct target targets[] = {
		{1, 70 * MS, 30 * MS, 1, 0},     {0.1, 10 * MS, 30 * MS, 1, 0},
		{0.2, 20 * MS, 30 * MS, 0.2, 0}, {4, 200 * MS, 30 * MS, 4, 0.002},
		{0, 0, 30 * MS, 1, 0},           {1, 3 * MS, 30 * MS, 1, 0},
	};
	static const double budgets[] = {0.01, 0.05, 0.1, 0.5};

	(void)state;
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++)
		for (size_t k = 0; k < sizeof(budgets) / sizeof(budgets[0]); k++) {
			const struct target *target = &targets[i];
			struct run run = {.windows = {.budget = budgets[k], .random = i * 10 + k},
					  .now_ns = S,
					  .over_ns = i % 2 ? 40 * MS : 0};

			assert_int_equal(run_until(&run, target, 3600 * S), 0);
			double most = (budgets[k] - target->base) * target->rate * 10e9;
			double least =
				target->rate_ns * (double)(WINDOWS_LENGTH_MIN + run.over_ns) +
				(double)target->edges_ns;

			/* The cost of the first one is a guess. */
			assert_true(worst(&run, 2) <= (most > least ? most : least) * 1.000001);
			assert_true(run.count >= 60);
			assert_true((double)(run.count * target->own_ns) <= 3700e9 * 0.0101);
			assert_true(run.at[0].start_ns - S < WINDOWS_FIRST_NS);
		}
}

/* What probes between windows have taken before they went belongs to the budget of these 10 s. */
static void test_others_gone(void **state)
{
	const double gone_ns = 200e6, budget_ns = 500e6;
	struct target target = {1, 3 * MS, 30 * MS, 1, 0.03};
	struct run run = {.windows = {.budget = 0.05, .random = 7}, .now_ns = S};
	double before_ns = 0, soon_ns = 0, later_ns = 0;
	uint64_t gone_at_ns;

	(void)state;
	assert_int_equal(run_until(&run, &target, 6 * S), 0);
	gone_at_ns = run.now_ns;
	for (size_t i = 0; i < run.count; i++)
		before_ns += run.loss_ns[i];
	/* An hour of it, of which the last 10 s count. */
	for (int i = 0; i < 14400; i++)
		windows_others_took(&run.windows, gone_ns / 40, S / 4);
	windows_others_gone(&run.windows, gone_at_ns);
	target.base = 0;
	size_t first = run.count;
	assert_int_equal(run_until(&run, &target, 40 * S), 0);
	for (size_t i = first; i < run.count; i++) {
		uint64_t since_ns = run.at[i].start_ns - gone_at_ns;

		soon_ns += since_ns < 4 * S ? run.loss_ns[i] : 0;
		later_ns += since_ns >= 15 * S && since_ns < 25 * S ? run.loss_ns[i] : 0;
	}
	assert_true(before_ns + gone_ns + soon_ns <= 1.1 * budget_ns);
	assert_true(later_ns >= 0.8 * budget_ns);
	/* More than the budget: no window for that time, but one after it. */
	windows_others_took(&run.windows, 2 * budget_ns, S / 50);
	windows_others_gone(&run.windows, run.now_ns);
	gone_at_ns = run.now_ns;
	first = run.count;
	assert_int_equal(run_until(&run, &target, gone_at_ns + 20 * S), 0);
	assert_true(run.count > first && run.at[first].start_ns >= gone_at_ns + 10 * S);
}

/* A target that takes little of a CPU has windows all the same, for little of a CPU. */
static void test_little_work(void **state)
{
	const struct target target = {0.08, 6 * MS, 25 * MS, 0.015, 0};
	const double budget = 0.01;
	struct run run = {.windows = {.budget = budget, .random = 7}, .now_ns = S};
	(void)state;

	assert_int_equal(run_until(&run, &target, 601 * S), 0);
	assert_true(run.count >= 100);
	assert_true(worst(&run, 2) <= budget * WINDOWS_RATE_MIN * 10e9 * 1.000001);
}

/* The budget is used, too: a target that loses everything in a window of a quiet machine. */
static void test_used(void **state)
{
	const struct target target = {1, 70 * MS, 20 * MS, 1, 0};
	struct run run = {.windows = {.budget = 0.05, .random = 1}, .now_ns = S};
	double sum = 0;
	(void)state;

	assert_int_equal(run_until(&run, &target, 1000 * S), 0);
	for (size_t i = 0; i < run.count; i++)
		sum += run.loss_ns[i];
	assert_true(sum > 0.6 * 0.05 * 1000e9);
}

/*
 * Edges and lengths differ from window to window, as on a busy machine: the budget holds on
 * average, and most of it is used.
 */
static void test_noisy(void **state)
{
	static const uint64_t edges[] = {MS / 2,  24 * MS, 12 * MS, 4 * MS,
					 48 * MS, 0,       8 * MS,  16 * MS};
	struct target target = {0.16, 0, 12 * MS, WINDOWS_RATE_MIN, 0};
	struct run run = {.windows = {.budget = 0.05, .random = 1}, .now_ns = S};
	double sum = 0;
	(void)state;

	for (uint64_t at_s = 2; run.now_ns < 1000 * S; at_s++) {
		target.edges_ns = edges[run.count % 8];
		run.over_ns = run.count % 3 * 30 * MS;
		assert_int_equal(run_until(&run, &target, at_s * S), 0);
	}
	for (size_t i = 0; i < run.count; i++)
		sum += run.loss_ns[i];
	assert_true(sum > 0.7 * 0.05 * WINDOWS_RATE_MIN * 1000e9);
	assert_true(sum < 0.05 * WINDOWS_RATE_MIN * 1000e9);
	assert_true(worst(&run, 2) <= 1.6 * 0.05 * WINDOWS_RATE_MIN * 10e9);
	assert_true(run.count > 200 && length_sum(&run) > 16 * S);
}

/* The first window comes before the budget allows it: the next one comes half a pause later. */
static void test_ahead(void **state)
{
	const struct target target = {1, 20 * MS, 1 * MS, 1, 0};
	double first = 0, later = 0;
	(void)state;

	for (uint64_t i = 0; i < 200; i++) {
		struct run run = {.windows = {.budget = 0.05, .random = i}, .now_ns = S};

		assert_int_equal(run_until(&run, &target, 20 * S), 0);
		first += (double)(run.at[1].start_ns - run.at[0].start_ns);
		later += (double)(run.at[7].start_ns - run.at[6].start_ns);
	}
	assert_true(first > 1.35 * later && first < 1.65 * later);
}

/* What is shown as the cost is a share of what the budget is a share of, and soon forgotten. */
static void test_share(void **state)
{
	const struct target busy = {1, 20 * MS, 1 * MS, 1, 0}, light = {0.02, 5 * MS, MS, 0.02, 0};
	const struct target *targets[] = {&busy, &light};
	(void)state;

	for (size_t i = 0; i < 2; i++) {
		struct run run = {.windows = {.budget = 0.05, .random = i}, .now_ns = S};

		assert_int_equal(run_until(&run, targets[i], 2 * S), 0);
		assert_true(windows_share(&run.windows, run.now_ns) <= 0.05);
		assert_int_equal(run_until(&run, targets[i], 100 * S), 0);
		assert_true(windows_share(&run.windows, run.now_ns) > 0.03);
		assert_true(windows_share(&run.windows, run.now_ns) <= 0.05 * 1.1);
		assert_true(windows_share(&run.windows, run.now_ns + 11 * S) == 0);
	}
}

/* If placing probes is expensive, windows are longer and rarer. */
static void test_edges(void **state)
{
	const struct target cheap = {1, 20 * MS, 5 * MS, 1, 0}, dear = {1, 150 * MS, 5 * MS, 1, 0};
	struct run a = {.windows = {.budget = 0.1}, .now_ns = S},
		   b = {.windows = {.budget = 0.1}, .now_ns = S};
	(void)state;

	assert_int_equal(run_until(&a, &cheap, 600 * S), 0);
	assert_int_equal(run_until(&b, &dear, 600 * S), 0);
	assert_true(a.count > 3 * b.count);
	assert_true(a.at[a.count - 1].length_ns < b.at[b.count - 1].length_ns);
}

/* Of many targets each has fewer windows, so that the tracer takes no more than for one. */
static void test_targets(void **state)
{
	const struct target target = {0.1, 10 * MS, 10 * MS, 1, 0};
	struct run one = {.windows = {.budget = 0.5}, .now_ns = S},
		   ten = {.windows = {.budget = 0.5, .targets = 10}, .now_ns = S};
	(void)state;

	assert_int_equal(run_until(&one, &target, 600 * S), 0);
	assert_int_equal(run_until(&ten, &target, 600 * S), 0);
	assert_uint_in_range(one.count, 8 * ten.count, 12 * ten.count);
}

/* Nothing is lost by probes that are hardly hit: they are in place for longer. */
static void test_cheap(void **state)
{
	const struct target target = {0.001, 1 * MS, 30 * MS, 1, 0};
	struct run run = {.windows = {.budget = 0.05}, .now_ns = S};
	(void)state;

	assert_int_equal(run_until(&run, &target, 600 * S), 0);
	assert_true(length_sum(&run) > 120 * S);
}

/* Other probes use up the budget, or windows are too expensive for it. */
static void test_none(void **state)
{
	const struct target other = {1, 70 * MS, 20 * MS, 1, 0.05},
			    dear = {1, 10 * S, 20 * MS, 1, 0};
	struct run run = {.windows = {.budget = 0.05}, .now_ns = S};
	(void)state;

	assert_int_equal(run_until(&run, &other, 600 * S), -ENOSPC);
	assert_int_equal(run.count, 1);
	run = (struct run){.windows = {.budget = 0.05}, .now_ns = S};
	assert_int_equal(run_until(&run, &dear, 600 * S), -ENOSPC);
}

/* Other probes take more than half of the budget all the time: fewer do, if there is a way. */
static void test_yields(void **state)
{
	const struct target half = {1, 20 * MS, 20 * MS, 1, 0.02},
			    more = {1, 20 * MS, 20 * MS, 1, 0.03};
	const struct windows_cost burst = {.length_ns = 20 * MS,
					   .inside_ns = 20 * MS,
					   .edges_ns = 20 * MS,
					   .own_ns = 20 * MS,
					   .cpu_ns = 19 * S / 10,
					   .elapsed_ns = 19 * S / 10,
					   .base = more.base};
	struct run run = {.windows = {.budget = 0.05, .yields = 1}, .now_ns = S};
	(void)state;

	assert_int_equal(run_until(&run, &half, 600 * S), 0);
	run.now_ns += burst.elapsed_ns;
	windows_took(&run.windows, &burst);
	assert_int_equal(run_until(&run, &half, run.now_ns + 60 * S), 0);
	uint64_t since_ns = run.now_ns;
	assert_int_equal(run_until(&run, &more, since_ns + 600 * S), -ENOSPC);
	assert_uint_in_range(run.now_ns - since_ns, 2 * S, 10 * S);
	run = (struct run){.windows = {.budget = 0.05}, .now_ns = S};
	assert_int_equal(run_until(&run, &more, 600 * S), 0);
}

/* After the target was stopped for a minute there is one window, not those that were left out. */
static void test_stopped(void **state)
{
	const struct target target = {1, 70 * MS, 20 * MS, 1, 0};
	struct run run = {.windows = {.budget = 0.05}, .now_ns = S};
	size_t before;
	(void)state;

	assert_int_equal(run_until(&run, &target, 100 * S), 0);
	before = run.count;
	run.now_ns += 60 * S;
	assert_int_equal(run_until(&run, &target, run.now_ns + 10 * S), 0);
	assert_true(run.count - before <= 5);
	assert_true(worst(&run, 2) <= 0.05 * 10e9 * 1.000001);
}

/* The clock jumps: a suspended machine, or a virtual one that stood still. */
static void test_suspended(void **state)
{
	static const uint64_t jumps[] = {100 * MS, 3 * S, 60 * S, 3600 * S, 100000 * S};
	const struct target target = {1, 70 * MS, 20 * MS, 1, 0};
	(void)state;

	for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		struct run run = {.windows = {.budget = 0.01, .random = i}, .now_ns = S};
		struct windows_cost cost = {.length_ns = jumps[i], .elapsed_ns = jumps[i]};
		uint64_t before_ns, until_ns;
		size_t before;

		assert_int_equal(run_until(&run, &target, 50 * S), 0);
		/* It stood still in a window: the target took no CPU time. */
		run.now_ns += jumps[i];
		windows_took(&run.windows, &cost);
		before = run.count;
		before_ns = run.now_ns;
		until_ns = before_ns + 2 * WINDOWS_PAUSE_MAX;
		/* 0: although so little CPU time allows hardly any window. */
		assert_int_equal(run_until(&run, &target, until_ns), 0);
		/* Windows go on, and none is made up for. */
		assert_true(run.count > before);
		assert_true(run.at[before].start_ns - before_ns <= WINDOWS_PAUSE_MAX * 3 / 2);
		assert_true(run.at[before].length_ns <= WINDOWS_LENGTH_MAX);
		assert_true(worst(&run, 2) <= 0.01 * 10e9 * 1.000001);
	}
}

/*
 * Windows of an idle target are long, those of one that does nothing short. One in which it becomes
 * busy ends early, and those after it are planned by what that one has cost, not by those before.
 */
static void test_becomes_busy(void **state)
{
	const struct target idle = {0, 0, 20 * MS, 0.001, 0}, busy = {1, 70 * MS, 20 * MS, 1, 0};
	const struct target asleep = {0, 0, 20 * MS, 0, 0};
	struct run run = {.windows = {.budget = 0.05, .rate = 0.001}, .now_ns = S};
	double loss_ns = 0;
	size_t before;
	(void)state;

	assert_int_equal(run_until(&run, &asleep, 50 * S), 0);
	assert_true(run.count > 10);
	assert_true(run.at[run.count - 1].length_ns <= 50 * MS);
	assert_int_equal(run_until(&run, &idle, 100 * S), 0);
	assert_true(run.at[run.count - 1].length_ns >= 500 * MS);
	assert_true(windows_loss_most(&run.windows) <= 0.05 * 0.2 * 10e9 / 10);
	windows_took(&run.windows, &(struct windows_cost){.length_ns = 8 * MS,
							  .inside_ns = 8 * MS,
							  .edges_ns = 70 * MS,
							  .own_ns = 20 * MS,
							  .cpu_ns = 10 * MS,
							  .elapsed_ns = S});
	before = run.count;
	assert_int_equal(run_until(&run, &busy, run.now_ns + 10 * S), 0);
	for (size_t i = before; i < run.count; i++)
		loss_ns += run.loss_ns[i];
	assert_true(run.count > before);
	assert_true(loss_ns <= 0.05 * 10e9);
	/* Of a busy target, windows end as they were planned. */
	assert_true(windows_loss_most(&run.windows) >= 2 * run.loss_ns[run.count - 1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_budget),       cmocka_unit_test(test_others_gone),
		cmocka_unit_test(test_used),         cmocka_unit_test(test_edges),
		cmocka_unit_test(test_ahead),        cmocka_unit_test(test_share),
		cmocka_unit_test(test_cheap),        cmocka_unit_test(test_none),
		cmocka_unit_test(test_yields),       cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_targets),      cmocka_unit_test(test_suspended),
		cmocka_unit_test(test_noisy),        cmocka_unit_test(test_little_work),
		cmocka_unit_test(test_becomes_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
