/* SPDX-License-Identifier: Apache-2.0 */
/* How a line of a series is named. */
#pragma once

#include <stdio.h>

#include "report/recording/series.h"

struct json;

/* What the lines are: "line", "file"; "thread", "task", "value". Static. */
const char *line_noun(enum group_by by);
/* "file:line", with the function where it counts; for a terminal. */
void line_name_print(FILE *out, const struct series_line *line, enum group_by by);
/* "traceback": [{"filename": …, "lineno": …}], as in a report's JSON; "value": … */
void line_name_json(struct json *json, const struct series_line *line, enum group_by by);
/* "by", and the "label" of values, as in a report's JSON; nothing of lines. */
void line_by_json(struct json *json, const struct series *series, enum group_by by);
/* The same for a page. */
void line_name_html(FILE *out, const struct series_line *line, enum group_by by);

/* The series' lines by that figure, largest first. NULL: -ENOMEM. Caller frees. */
typedef double (*line_rank_fn)(const struct series *series, size_t line, const void *context);
size_t *lines_rank(const struct series *series, line_rank_fn rank, const void *context);
