/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/windowed.h"

#include "snapshot/ages.h"

#include <math.h>

/* Sums of rounded figures, so that their rounding error is carried on. */
struct rounding {
	double rest;
};

static uint64_t count_round(struct rounding *rounding, double blocks)
{
	double exact = blocks + rounding->rest, count = fmax(0, round(exact));

	rounding->rest = exact - count;
	return (uint64_t)count;
}

static int trace_prepare(struct builder *builder, const struct calibrate_estimate *row,
			 struct snapshot_trace *trace)
{
	struct snapshot_estimate estimate;

	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++)
		/* 0 is added because -0 is another value to the builder. */
		estimate.deviations[i] =
			roundf(row->deviations[i] * ESTIMATE_STEPS) / ESTIMATE_STEPS + 0.0f;
	return builder_estimate(builder, &estimate, trace);
}

int windowed_owners_add(struct builder *builder, const struct snapshot_trace *rows,
			const struct calibrate_result *result, uint32_t layer)
{
	struct rounding rounding = {0};
	int err = 0;

	for (size_t i = 0; !err && i < result->row_count; i++) {
		struct snapshot_trace trace = rows[i];

		trace.count = count_round(&rounding, result->rows[i].blocks);
		if (trace.count)
			err = trace_prepare(builder, &result->rows[i], &trace)
				      ?: builder_layer(builder, layer, &trace);
	}
	return err;
}

static void windows_set(struct snapshot_windows *windows, const struct calibrate_result *result)
{
	*windows = (struct snapshot_windows){
		.count = result->windows,
		.on_ns = result->on_ns,
		.span_ns = result->span_ns,
		.new_blocks = result->new_blocks,
		.seen_blocks = result->seen_blocks,
		.unseen_blocks = (uint64_t)llround(result->unseen.new_blocks),
		.unseen_bytes = (uint64_t)llround(result->unseen.new_bytes),
		.pool_blocks = (uint64_t)llround(result->pool_blocks),
		.pool_bytes = (uint64_t)llround(result->pool_bytes),
		.old_unseen_blocks = (uint64_t)llround(result->unseen.old_blocks),
		.old_unseen_bytes = (uint64_t)llround(result->unseen.old_bytes),
	};
}

int windowed_add(struct builder *builder, const struct snapshot_trace *rows,
		 const struct calibrate_result *result, int ages)
{
	struct rounding rounding = {0}, old_rounding = {0};
	int err = 0;

	for (size_t i = 0; !err && i < result->row_count; i++) {
		struct snapshot_trace trace = rows[i], older = rows[i];

		trace.count = count_round(&rounding, result->rows[i].blocks);
		older.age = ages ? AGE_BEFORE : AGE_UNKNOWN;
		older.count = count_round(&old_rounding, result->old_rows[i].blocks);
		if (trace.count)
			err = trace_prepare(builder, &result->rows[i], &trace);
		if (!err && trace.count)
			err = builder_trace(builder, &trace);
		if (!err && older.count)
			err = trace_prepare(builder, &result->old_rows[i], &older);
		if (!err && older.count)
			err = builder_layer(builder, SNAPSHOT_OLDER, &older);
	}
	windows_set(&builder->snapshot->meta.windows, result);
	return err;
}
