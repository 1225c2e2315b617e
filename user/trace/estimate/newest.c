/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/estimate/newest.h"

#include <math.h>

#define NEWEST_PART      12u /* of the time traced */
#define NEWEST_MIN_NS    500000000ull
#define NEWEST_MAX_NS    5000000000ull
#define LIKE_WINDOWS     24u /* as many at most, the last ones before that time */
#define LIKE_WINDOWS_MIN 3u

static uint64_t age_of(const struct newest *newest)
{
	return newest->walk_ns - newest->from_ns;
}

/* May a window tell how long blocks live? It is one, and has been over for as long as need be. */
bool newest_is_like(const struct trace_windows *windows, const struct newest *newest, size_t number)
{
	const struct trace_window *window = &windows->items[number];

	return number >= newest->like_from && number < newest->like_end && window->end_ns &&
	       window->length_ns && window->length_ns == window->end_ns - window->start_ns &&
	       window->length_ns <= age_of(newest) / 2;
}

/* The last cohort that had begun at time_ns, or the first. 0: there is none. */
static uint32_t cohort_at(const struct trace_windows *windows, uint64_t time_ns)
{
	uint32_t cohort = windows->cohort;

	while (cohort > COHORT_FIRST && state_cohort_ns(windows, cohort) > time_ns)
		cohort--;
	return cohort;
}

/* The time that has passed since the window before; of the first one, its length. */
static uint64_t span_of(const struct trace_windows *windows, size_t number)
{
	const struct trace_window *window = &windows->items[number];
	uint64_t before_ns = number ? window[-1].end_ns : window->start_ns;

	return window->end_ns > before_ns ? window->end_ns - before_ns : window->length_ns;
}

/* The windows that have been over for as long as donors stand for. */
static void likes_find(const struct trace_windows *windows, struct newest *newest)
{
	uint64_t age_ns = age_of(newest);

	newest->like_end = windows->count;
	while (newest->like_end &&
	       (!windows->items[newest->like_end - 1].end_ns ||
		windows->items[newest->like_end - 1].end_ns + age_ns > newest->walk_ns))
		newest->like_end--;
	newest->like_from = newest->like_end > LIKE_WINDOWS ? newest->like_end - LIKE_WINDOWS : 0;
	for (size_t i = newest->like_from; i < newest->like_end; i++) {
		if (!newest_is_like(windows, newest, i))
			continue;
		newest->like_count++;
		newest->like_ns += span_of(windows, i);
	}
	if (newest->like_count < LIKE_WINDOWS_MIN)
		newest->like_count = 0, newest->like_from = newest->like_end;
}

/*
 * The newest cohort for the estimator. If there are too few windows to tell how long blocks live,
 * it begins with the last walk before the last window, whose span begins there, too.
 */
void newest_find(const struct trace_windows *windows, struct newest *newest)
{
	uint64_t start_ns = windows->count ? windows->items[windows->count - 1].start_ns : 0;
	uint64_t begin_ns = state_cohort_ns(windows, COHORT_FIRST), age_ns;

	newest->walk_ns = state_cohort_ns(windows, windows->cohort);
	age_ns = newest->walk_ns > begin_ns ? (newest->walk_ns - begin_ns) / NEWEST_PART : 0;
	age_ns = age_ns < NEWEST_MIN_NS   ? NEWEST_MIN_NS
		 : age_ns > NEWEST_MAX_NS ? NEWEST_MAX_NS
					  : age_ns;
	newest->from_ns = newest->walk_ns > age_ns ? newest->walk_ns - age_ns : 0;
	newest->cohort = cohort_at(windows, newest->from_ns);
	if (newest->from_ns < state_cohort_ns(windows, newest->cohort))
		newest->from_ns = state_cohort_ns(windows, newest->cohort);
	likes_find(windows, newest);
	if (newest->like_count)
		return;
	newest->cohort = cohort_at(windows, start_ns);
	newest->from_ns = state_cohort_ns(windows, newest->cohort);
}

uint64_t newest_until(const struct trace_windows *windows, const struct newest *newest,
		      size_t number, uint64_t died_ns)
{
	const struct trace_window *window = &windows->items[number];
	uint64_t age_ns = age_of(newest);
	uint64_t most_ns = age_ns > window->length_ns ? age_ns - window->length_ns : 0;

	if (died_ns <= window->end_ns)
		return window->end_ns;
	return died_ns - window->end_ns < most_ns ? died_ns : window->end_ns + most_ns;
}

/* How old it was at its window's end; if that is not known, half a window, as on average. */
static uint64_t age_at_end(const struct trace_window *window, uint64_t made_ns)
{
	if (!made_ns || made_ns < window->start_ns)
		return window->length_ns / 2;
	return made_ns < window->end_ns ? window->end_ns - made_ns : 0;
}

double newest_times(const struct trace_windows *windows, const struct newest *newest, size_t number,
		    const struct lifetime *life)
{
	const struct trace_window *window = &windows->items[number];
	uint64_t until_ns = newest_until(windows, newest, number, life->died_ns);
	uint64_t lived_ns = until_ns - window->end_ns + window->length_ns;

	if (until_ns == life->died_ns)
		lived_ns += age_at_end(window, life->made_ns) - window->length_ns;
	return fmax(1, (double)lived_ns / (double)window->length_ns);
}

double newest_inclusion(const struct trace_windows *windows, const struct newest *newest,
			size_t number, const struct lifetime *life)
{
	return (double)newest->like_ns / (double)span_of(windows, number) /
	       newest_times(windows, newest, number, life);
}
