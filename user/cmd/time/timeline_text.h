/* SPDX-License-Identifier: Apache-2.0 */
/* A recording over time: sparklines on a terminal, JSON (docs/json.md), a page with charts. */
#pragma once

#include <stdio.h>

#include "report/recording/series.h"

struct json;

struct timeline {
	const struct series *series;
	const char *name; /* of the file */
	enum group_by by;
	size_t top; /* lines, those with the highest peaks first; 0: all */
	int ascii;  /* text: the terminal does not know block characters */
};

/* 0, -ENOMEM; of the type time_print_fn. */
int timeline_text(const void *timeline, FILE *out);
int timeline_json(const void *timeline, FILE *out);
int timeline_html(const void *timeline, FILE *out);

/* The members "begin" and "snapshots". */
void series_begin_json(struct json *json, const struct series *series);

/* "a.rec: 61 snapshots, from 2026-11-24 02:00:00 for 10 min 0 s, every tenth s shown" */
void timeline_title(const struct timeline *timeline, FILE *out);
/* Lines about when figures begin anew, and about what the probes took; or nothing. */
#define TIMELINE_LOST_REPORTED 0.01 /* A figure of the moments; line NULL: of the whole. */
enum timeline_figure { FIGURE_SIZE, FIGURE_COUNT, FIGURE_RSS, FIGURE_ALLOCATED };
