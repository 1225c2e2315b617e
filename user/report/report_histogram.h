/* SPDX-License-Identifier: Apache-2.0 */
/* Reports by the size or the lifetime of blocks instead of by lines: GROUP_SIZE, GROUP_LIFETIME. */
#pragma once

#include <stdbool.h>

#include "report/report.h"

/* These, and GROUP_THREAD and GROUP_TASK, which histogram_*() pass on. */
static inline bool group_is_histogram(enum group_by by)
{
	return by >= GROUP_SIZE;
}

/*
 * Of the first layer's blocks that pass the filters. Rows are in ascending order, without those
 * that are empty. Errors as report_text(); -EINVAL: a comparison, cumulative, or lifetimes that are
 * not known (error_set).
 */
int histogram_text(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
int histogram_json(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
int histogram_csv(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
