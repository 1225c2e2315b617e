/* SPDX-License-Identifier: Apache-2.0 */
/* Which lines of a recording grow, with the evidence: as text, as JSON (docs/json.md). */
#pragma once

#include <stdio.h>

#include "report/recording/evidence.h"
#include "report/recording/series.h"

struct json;

/* When a cgroup reaches its limit if it goes on as it did. */
struct leaks_limit {
	int known;      /* of all moments */
	uint64_t left;  /* bytes, at the last moment */
	int is_reached; /* it comes nearer, by the interval of the slope: */
	double seconds, soonest, latest;
};

#define LEAKS_LOST_MAX 0.5

struct leaks {
	const struct series *series; /* borrowed */
	const char *name;            /* of the file; borrowed */
	enum group_by by;
	size_t top;
	size_t begin; /* index of the first moment that counts: series_begin() */
	/*
	 * What the probes took since then: series_probes_share(), series_lost_share(). If that is
	 * LEAKS_LOST_MAX or more, there is no rate of the undisturbed target.
	 */
	double probes_share, lost_share;
	struct evidence *lines; /* of each line of the series; indices count from begin */
	size_t *order;          /* those that grow first, the surest first; then the unclear ones */
	size_t verdicts[EVIDENCE_GROWS + 1]; /* number of lines, by verdict */
	struct slope total, rss;
	int rss_known; /* at all moments */
	struct leaks_limit limit;
	/*
	 * set by the caller: members of the JSON that stand before these; then the text does not
	 * say how to find what holds them. NULL: none
	 */
	void (*more)(const void *context, struct json *json);
	const void *more_context; /* borrowed */
};

/*
 * 0; -EINVAL: the series has fewer than 2 moments, or since it was emptied (error_set); -ENOMEM.
 * leaks_free() releases.
 */
int leaks_find(const struct series *series, struct leaks *out);
void leaks_free(struct leaks *leaks);
/* Are there rates, or did the probes take too much of the time? */
static inline int leaks_has_rates(const struct leaks *leaks)
{
	return leaks->lost_share < LEAKS_LOST_MAX;
}

/* 0; of the type time_print_fn. */
int leaks_text(const void *leaks, FILE *out);
int leaks_json(const void *leaks, FILE *out);
