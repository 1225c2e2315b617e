/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of windows, with simulated targets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "overhead/windows.h"

#define MS 1000000ull
#define S  1000000000ull

/* What a target loses: CPU time for each ns of a window, and for placing and removing probes. */
struct target {
	double rate_ns;
	uint64_t edges_ns, own_ns;
	double rate, base;
};

/* Work at the beginning of each period, in which windows lose more. */
struct work {
	uint64_t period_ns, work_ns; /* 0: there is none */
	double rate_ns;
};

#define RUNS 4000

struct run {
	struct work work;
	struct windows windows;
	uint64_t now_ns;
	uint64_t over_ns; /* a window lasts so much longer than it was told to */
	size_t count;
	struct windows_next at[RUNS];
	double loss_ns[RUNS];
};

/* The time of the work in a window. */
static uint64_t work_in(const struct work *work, uint64_t start_ns, uint64_t length_ns)
{
	uint64_t sum = 0, end_ns = start_ns + length_ns;

	for (uint64_t at_ns = work->period_ns ? start_ns - start_ns % work->period_ns : end_ns;
	     at_ns < end_ns; at_ns += work->period_ns) {
		uint64_t from_ns = at_ns > start_ns ? at_ns : start_ns;
		uint64_t until_ns = at_ns + work->work_ns < end_ns ? at_ns + work->work_ns : end_ns;

		sum += until_ns > from_ns ? until_ns - from_ns : 0;
	}
	return sum;
}

/* Runs until a time, at most RUNS windows. The result of windows_next() that ended it. */
static int run_until(struct run *run, const struct target *target, uint64_t until_ns)
{
	uint64_t before_ns = run->now_ns;

	while (run->now_ns < until_ns && run->count < RUNS) {
		struct windows_next *next = &run->at[run->count];
		int err = windows_next(&run->windows, run->now_ns, next);

		if (err)
			return err;
		assert_true(next->start_ns >= run->now_ns);
		uint64_t length_ns = next->length_ns + run->over_ns;

		double worked_ns = (double)work_in(&run->work, next->start_ns, length_ns);

		run->now_ns = next->start_ns + length_ns + 10 * MS;
		struct windows_cost cost = {
			.length_ns = length_ns,
			.inside_ns = (uint64_t)(target->rate_ns * (double)length_ns +
						run->work.rate_ns * worked_ns),
			.edges_ns = target->edges_ns,
			.own_ns = target->own_ns,
			.cpu_ns = (uint64_t)(target->rate * (double)(run->now_ns - before_ns)),
			.elapsed_ns = run->now_ns - before_ns,
			.base = target->base,
		};

		run->loss_ns[run->count++] = (double)(cost.inside_ns + cost.edges_ns);
		before_ns = run->now_ns;
		windows_took(&run->windows, &cost);
	}
	return 0;
}

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

static uint64_t length_sum(const struct run *run)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < run->count; i++)
		sum += run->at[i].length_ns;
	return sum;
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
	assert_in_range(one.count, 8 * ten.count, 12 * ten.count);
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

/* Moments are spread: no phase of a period of one second is preferred. */
static void test_random(void **state)
{
	const struct target target = {1, 70 * MS, 20 * MS, 1, 0};
	unsigned int phases[10] = {0};
	static struct run run;
	(void)state;

	run = (struct run){.windows = {.on_ns = 40 * MS, .off_ns = 960 * MS}, .now_ns = S};
	assert_int_equal(run_until(&run, &target, 10000 * S), 0);
	assert_int_equal(run.count, RUNS);
	for (size_t i = 0; i < run.count; i++) {
		assert_int_equal(run.at[i].length_ns, 40 * MS);
		phases[run.at[i].start_ns / (100 * MS) % 10]++;
	}
	for (size_t i = 0; i < 10; i++)
		assert_in_range(phases[i], RUNS / 10 * 8 / 10, RUNS / 10 * 12 / 10);
	assert_in_range(length_sum(&run) * 1000 / run.now_ns, 39, 41);
}

/*
 * The estimate of the part of the time in which there is work, relative to the truth: each window
 * stands for the time since the one before.
 */
static double work_found(const struct run *run)
{
	const struct work *work = &run->work;
	double found = 0, all = 0;

	for (size_t i = 1; i < run->count; i++) {
		const struct windows_next *at = &run->at[i], *before = at - 1;
		double span = (double)(at->start_ns + at->length_ns - before->start_ns -
				       before->length_ns);

		found += span * (double)work_in(work, at->start_ns, at->length_ns) /
			 (double)at->length_ns;
		all += span;
	}
	return found / all * (double)work->period_ns / (double)work->work_ns;
}

static const uint64_t periods_s[] = {1, 2, 3, 5, 10};
#define PERIODS (sizeof(periods_s) / sizeof(periods_s[0]))

/* Work in a tenth of each period, beginning with it. */
static void work_begin(struct run *run, size_t period, double rate_ns, uint64_t random)
{
	*run = (struct run){.work = {.period_ns = periods_s[period] * S,
				     .work_ns = periods_s[period] * 100 * MS,
				     .rate_ns = rate_ns},
			    .windows = {.budget = 0.05, .random = random},
			    .now_ns = S + random * 50 * MS};
}

/* What costs more in windows is not shown too often: what one has cost does not time the next. */
static void test_costly_work(void **state)
{
	const struct target target = {0.045, 2 * MS, 10 * MS, 0.03, 0};
	static struct run run;
	(void)state;

	for (size_t i = 0; i < PERIODS; i++) {
		work_begin(&run, i, 0.2, i);
		assert_int_equal(run_until(&run, &target, 3600 * S), 0);
		double found = work_found(&run);

		print_message("every %d s: %.3f\n", (int)periods_s[i], found);
		assert_true(fabs(found - 1) < 0.06);
	}
}

/* A minute shows work of each second and of a few seconds about as often as there is of it. */
static void test_even(void **state)
{
	static const double most[] = {0.15, 0.25, 0.35, 0.5, 0.6};
	const struct target target = {0.045, 2 * MS, 32 * MS, 0.03, 0};
	static struct run run;
	(void)state;

	for (size_t i = 0; i < PERIODS; i++) {
		double square = 0;

		for (uint64_t k = 0; k < 200; k++) {
			work_begin(&run, i, 0.09, k);
			assert_int_equal(run_until(&run, &target, run.now_ns + 60 * S), 0);
			square += pow(work_found(&run) - 1, 2) / 200;
		}
		print_message("every %d s: %.3f\n", (int)periods_s[i], sqrt(square));
		assert_true(sqrt(square) < most[i]);
	}
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
	struct run run = {.windows = {.budget = 0.05, .yields = 1}, .now_ns = S};
	(void)state;

	assert_int_equal(run_until(&run, &half, 600 * S), 0);
	/* A burst. */
	assert_int_equal(run_until(&run, &more, run.now_ns + 1), 0);
	assert_int_equal(run_until(&run, &half, run.now_ns + 60 * S), 0);
	uint64_t since_ns = run.now_ns;
	assert_int_equal(run_until(&run, &more, since_ns + 600 * S), -ENOSPC);
	assert_in_range(run.now_ns - since_ns, 2 * S, 10 * S);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_budget),      cmocka_unit_test(test_others_gone),
		cmocka_unit_test(test_used),        cmocka_unit_test(test_edges),
		cmocka_unit_test(test_cheap),       cmocka_unit_test(test_random),
		cmocka_unit_test(test_none),        cmocka_unit_test(test_yields),
		cmocka_unit_test(test_stopped),     cmocka_unit_test(test_targets),
		cmocka_unit_test(test_suspended),   cmocka_unit_test(test_noisy),
		cmocka_unit_test(test_little_work), cmocka_unit_test(test_costly_work),
		cmocka_unit_test(test_even),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
