/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports by the thread, or the asyncio task, that has allocated what is alive: GROUP_THREAD,
 * GROUP_TASK.
 */
#pragma once

#include "report/report.h"

/*
 * Of the first layer's blocks that pass the filters, the one that holds most first. Errors as
 * report_text(); -EINVAL: a comparison, or a snapshot without threads or tasks (error_set).
 */
int threads_text(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
int threads_json(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
int threads_csv(const struct snapshot *snapshot, const struct report_opts *opts, FILE *out);
