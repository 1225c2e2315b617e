/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tracer serve compares: snapshots and parts of them, and heaps. An answer is the JSON that
 * the same question of tracer diff or of tracer heap diff prints, or the page of tracer export.
 *
 * A snapshot is named by the number of its source: "0". A part of it is "0/process/PID",
 * "0/thread/TID", "0/task/N" or "0/value/N": N counts the rows of tracer report --by from 0.
 */
#pragma once

#include <stdio.h>

#include "cmd/options/options.h"
#include "cmd/serve/serve_web.h"

struct json;

struct serve_comparison {
	const struct serve_source *sources;
	size_t count;
	const char *a, *b; /* the older one and the newer one; NULL: missing */
	const char *c;     /* of heaps: a later one; NULL: none */
	const char *by;    /* NULL: lineno, or of heaps type */
	uint32_t top;
};

/* The member "parts": a snapshot and its parts. 0, -ENOMEM. */
int serve_parts_json(const struct serve_source *source, size_t number, struct json *json);

/* They write to out. 0; -EINVAL, -ENOENT (error_set): such a thing is not served; -errno. */
int serve_compare_json(const struct serve_comparison *comparison, FILE *out);
int serve_compare_page(const struct serve_comparison *comparison, FILE *out);
int serve_compare_heaps(const struct serve_comparison *comparison, FILE *out);

/* The page of a snapshot, compared with an older one if old is not NULL. 0, -errno. */
int serve_page(const struct snapshot *snapshot, const char *name, const struct snapshot *old,
	       const char *old_name, struct buffer *page);
/* Reads what was written to a file that was just made. 0, -errno. */
int serve_page_take(int fd, struct buffer *page);
/* The value of an argument among words; text NULL: it stays as it is. 0; -EINVAL (error_set). */
int serve_word_find(const char *argument, const struct cli_word *words, size_t count,
		    const char *text, int *value);
