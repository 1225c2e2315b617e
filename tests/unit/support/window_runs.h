/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows over a known stream of allocations, and how the estimates compare with the truth. All
 * random numbers come from seeds, so each run gives the same result. Include after cmocka.h.
 */
#ifndef TEST_WINDOW_RUNS_H
#define TEST_WINDOW_RUNS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/estimate/calibrate.h"
#include "util/array.h"
#include "util/hash.h"

#define RUN_STRATA_BITS 6 /* of the cohort, in a stratum's number */
#define NEVER           1e300

/* A block: when it was allocated and freed, in seconds, by which line, and what it is. */
struct birth {
	double at, death;
	uint32_t line;
	uint32_t type; /* type and size class, from 0 */
};

struct stream {
	struct birth *births;
	size_t count, capacity;
	uint32_t lines, types;
	double end; /* the heap walk */
};

struct run_opts {
	double window, period; /* seconds */
	double speed;          /* of the target in windows */
	int last;              /* one more window ends at the heap walk; its period is a cohort */
	double cohort;         /* seconds between complete heap walks; 0: no cohorts */
	double spread;         /* the walk is up to so many seconds earlier */
	uint32_t lengths;      /* so many types in a row are of one family; 0: each is its own */
	uint64_t seed;
};

/* A line's blocks in one run. */
struct line_figures {
	double truth, estimate, error;
	double old_truth, old_estimate;
};

struct run {
	struct line_figures *lines; /* stream.lines */
	struct calibrate_result result;
	double truth, seen; /* new blocks alive; sampled blocks of them */
	double old_truth;
};

static inline double random_unit(uint64_t *seed)
{
	return (double)(hash_u64(++*seed * 0x9e3779b97f4a7c15ull) >> 11) * 0x1p-53;
}

static inline void stream_add(struct stream *stream, double at, double life, uint32_t line,
			      uint32_t type)
{
	assert_int_equal(array_reserve(&stream->births, &stream->capacity, stream->count, 1,
				       sizeof(*stream->births)),
			 0);
	stream->births[stream->count++] = (struct birth){at, at + life, line, type};
	if (line >= stream->lines)
		stream->lines = line + 1;
	if (type >= stream->types)
		stream->types = type + 1;
}

struct run_state {
	const struct stream *stream;
	const struct run_opts *opts;
	struct calibrate_stratum *strata;
	struct calibrate_window *windows;
	size_t window_count;
	struct calibrate_sampled_block *sampled_blocks;
	size_t sampled_block_count, sampled_block_capacity;
	double end; /* the heap walk */
};

/* Windows start anywhere in their period, so that every moment is as probable as any other. */
static inline void windows_place(struct run_state *state)
{
	const struct run_opts *opts = state->opts;
	uint64_t seed = opts->seed * 1000003;

	state->window_count = (size_t)(state->end / opts->period);
	state->windows = calloc(state->window_count + 1, sizeof(*state->windows));
	assert_non_null(state->windows);
	for (size_t i = 0; i < state->window_count; i++) {
		double start = ((double)i + random_unit(&seed)) * opts->period;

		if (opts->last && i + 1 == state->window_count)
			start = state->end - opts->window;

		state->windows[i] = (struct calibrate_window){
			.start_ns = (uint64_t)(start * 1e9),
			.end_ns = (uint64_t)((start + opts->window) * 1e9),
			.span_ns = (uint64_t)(opts->period * 1e9),
		};
	}
}

/* The window that shows a moment; -1: none. */
static inline ptrdiff_t window_of(const struct run_state *state, double at)
{
	double length = state->opts->window * state->opts->speed;
	ptrdiff_t last = (ptrdiff_t)(at / state->opts->period);

	for (ptrdiff_t i = last; i >= 0 && i >= last - 1; i--) {
		if (i >= (ptrdiff_t)state->window_count)
			continue;
		double start = (double)state->windows[i].start_ns / 1e9;

		if (at >= start && at < start + length)
			return i;
	}
	return -1;
}

static inline uint32_t stratum_of(const struct run_state *state, const struct birth *birth)
{
	const struct run_opts *opts = state->opts;
	double cohort =
		opts->cohort > 0 && birth->at >= 0 ? 1 + floor(birth->at / opts->cohort) : 0;

	if (opts->last && birth->at >= state->end - opts->period)
		cohort = (1 << RUN_STRATA_BITS) - 1;

	assert_true(cohort < 1 << RUN_STRATA_BITS);
	return birth->type << RUN_STRATA_BITS | (uint32_t)cohort;
}

static inline void birth_take(struct run_state *state, const struct birth *birth, struct run *run)
{
	uint32_t stratum = stratum_of(state, birth);
	int alive = birth->death > state->end;
	ptrdiff_t window = birth->at >= 0 ? window_of(state, birth->at) : -1;

	if (alive && birth->at < 0) {
		state->strata[stratum].old_blocks++;
		run->lines[birth->line].old_truth++;
		run->old_truth++;
	} else if (alive) {
		state->strata[stratum].new_blocks++;
		run->lines[birth->line].truth++;
		run->truth++;
	}
	if (window < 0)
		return;
	run->seen += alive;
	assert_int_equal(array_reserve(&state->sampled_blocks, &state->sampled_block_capacity,
				       state->sampled_block_count, 1,
				       sizeof(*state->sampled_blocks)),
			 0);
	state->sampled_blocks[state->sampled_block_count++] = (struct calibrate_sampled_block){
		.stratum = stratum,
		.window = (uint32_t)window,
		.row = birth->line,
		.alive = (uint32_t)alive,
		.inclusion = state->opts->window / state->opts->period,
	};
}

/* The time in which the blocks of each cohort came. */
static inline void cohorts_fill(const struct run_state *state, uint64_t *cohorts_ns)
{
	const struct run_opts *opts = state->opts;
	double end = state->end - (opts->last ? opts->period : 0);

	for (uint32_t i = 1; i < 1u << RUN_STRATA_BITS; i++)
		cohorts_ns[i] =
			(uint64_t)(1e9 * fmax(0, fmin(opts->cohort, end - (i - 1) * opts->cohort)));
	if (opts->last)
		cohorts_ns[(1u << RUN_STRATA_BITS) - 1] = (uint64_t)(1e9 * opts->period);
}

static inline double row_error(const struct calibrate_estimate *row)
{
	return sqrt(calibrate_variance(row->deviations));
}

static inline void run_make(const struct stream *stream, const struct run_opts *opts,
			    struct run *run)
{
	struct run_state state = {.stream = stream, .opts = opts};
	uint64_t seed = opts->seed * 999983;
	size_t strata = (size_t)stream->types << RUN_STRATA_BITS;

	state.end = stream->end - random_unit(&seed) * opts->spread;
	*run = (struct run){.lines = calloc(stream->lines, sizeof(*run->lines))};
	state.strata = calloc(strata, sizeof(*state.strata));
	assert_non_null(run->lines);
	assert_non_null(state.strata);
	for (size_t i = 0; i < strata; i++)
		state.strata[i] = (struct calibrate_stratum){
			.type = 1 + (i >> RUN_STRATA_BITS),
			.family = opts->lengths ? 1 + (i >> RUN_STRATA_BITS) / opts->lengths : 0,
			.class_bytes = 64,
			.cohort = i & ((1u << RUN_STRATA_BITS) - 1),
		};
	windows_place(&state);
	for (size_t i = 0; i < stream->count; i++)
		if (stream->births[i].at <= state.end)
			birth_take(&state, &stream->births[i], run);
	for (size_t i = 0; i < strata; i++) {
		state.strata[i].new_bytes = state.strata[i].new_blocks * 64;
		state.strata[i].old_bytes = state.strata[i].old_blocks * 64;
	}
	uint64_t cohorts_ns[1u << RUN_STRATA_BITS] = {0};

	cohorts_fill(&state, cohorts_ns);
	const struct calibrate_input input = {
		.cohorts_ns = opts->cohort > 0 ? cohorts_ns : NULL,
		.cohort_count = 1u << RUN_STRATA_BITS,
		.strata = state.strata,
		.stratum_count = strata,
		.windows = state.windows,
		.window_count = state.window_count,
		.sampled_blocks = state.sampled_blocks,
		.sampled_block_count = state.sampled_block_count,
		.row_count = stream->lines,
	};
	assert_int_equal(calibrate(&input, &run->result), 0);
	for (uint32_t i = 0; i < stream->lines; i++) {
		run->lines[i].estimate = run->result.rows[i].blocks;
		run->lines[i].error = row_error(&run->result.rows[i]);
		run->lines[i].old_estimate = run->result.old_rows[i].blocks;
	}
	free(state.strata);
	free(state.windows);
	free(state.sampled_blocks);
}

static inline void run_free(struct run *run)
{
	calibrate_free(&run->result);
	free(run->lines);
}

/* Over many runs of one stream, of the lines that hold at least a share of 1 % (or 5 %). */
struct runs {
	uint32_t count;
	double lines, intervals, covered; /* of lines >= 1 %: 95 % intervals */
	double worst_5, worst_1;          /* the 95th percentile of relative errors */
	double mean_5, mean_1;            /* root of the mean square */
	double bias;                      /* the mean relative error of lines >= 1 % */
	double false_blocks, unseen;      /* shares of all new blocks, means */
	double old_right, old_unseen;     /* shares of all old blocks: at the right line; told */
	double seen;
};

static inline int double_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct error_list {
	double *errors;
	size_t count, capacity;
};

static inline void error_add(struct error_list *list, double error)
{
	assert_int_equal(
		array_reserve(&list->errors, &list->capacity, list->count, 1, sizeof(double)), 0);
	list->errors[list->count++] = fabs(error);
}

static inline void errors_sum(struct error_list *list, double *worst, double *mean)
{
	double sum = 0;

	if (list->count)
		qsort(list->errors, list->count, sizeof(double), double_compare);
	for (size_t i = 0; i < list->count; i++)
		sum += list->errors[i] * list->errors[i];
	*worst = list->count ? list->errors[list->count * 95 / 100] : 0;
	*mean = list->count ? sqrt(sum / (double)list->count) : 0;
	free(list->errors);
}

static inline void run_judge(const struct stream *stream, const struct run *run, struct runs *out,
			     struct error_list *large, struct error_list *small)
{
	double right = 0, false_blocks = 0;

	for (uint32_t i = 0; i < stream->lines; i++) {
		const struct line_figures *line = &run->lines[i];

		right += fmin(line->old_truth, line->old_estimate);
		if (line->truth == 0)
			false_blocks += line->estimate;
		if (line->truth < run->truth / 100)
			continue;
		out->lines++;
		if (line->estimate <= 0)
			continue;
		out->intervals++;
		out->covered += fabs(line->estimate - line->truth) <= 1.96 * line->error + 0.5;
		out->bias += line->estimate / line->truth - 1;
		error_add(small, line->estimate / line->truth - 1);
		if (line->truth >= run->truth / 20)
			error_add(large, line->estimate / line->truth - 1);
	}
	out->false_blocks += false_blocks / run->truth;
	out->unseen += run->result.unseen.new_blocks / run->truth;
	out->seen += run->seen / run->truth;
	out->old_right += run->old_truth > 0 ? right / run->old_truth : 1;
	out->old_unseen += run->old_truth > 0 ? run->result.unseen.old_blocks / run->old_truth : 0;
}

static inline struct runs runs_make(const struct stream *stream, struct run_opts opts,
				    uint32_t count)
{
	struct runs out = {.count = count};
	struct error_list large = {0}, small = {0};

	for (uint32_t i = 0; i < count; i++) {
		struct run run;

		opts.seed = i + 1;
		run_make(stream, &opts, &run);
		run_judge(stream, &run, &out, &large, &small);
		run_free(&run);
	}
	errors_sum(&large, &out.worst_5, &out.mean_5);
	errors_sum(&small, &out.worst_1, &out.mean_1);
	if (out.intervals > 0) {
		out.covered /= out.intervals;
		out.bias /= out.intervals;
		out.lines /= count;
		out.intervals /= count;
	}
	out.false_blocks /= count;
	out.unseen /= count;
	out.seen /= count;
	out.old_right /= count;
	out.old_unseen /= count;
	return out;
}

#endif
