/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the text report that says what the figures lack. */
#pragma once

#include <stdio.h>

#include "snapshot/snapshot.h"

struct not_seen_opts {
	const char *title; /* "Not seen", or which of two compared snapshots the part is about */
	int color;         /* only for a terminal */
	/* the report covers the whole snapshot: its share of the RSS is printed */
	int whole;
};

/* Prints a single line if nothing is missing beyond what every trace lacks. */
void not_seen_print(FILE *out, const struct snapshot *snapshot, const struct not_seen_opts *opts);
/*
 * The short form beside other figures: what is needed to read them (sampling, lost events, blocks
 * older than the trace), and a pointer to `tracer report` for the rest.
 */
void not_seen_brief_print(FILE *out, const struct snapshot *snapshot);

/* Tenths of a percent, rounded down: 1000 only if part is at least whole. */
unsigned int not_seen_permille(uint64_t part, uint64_t whole);
/*
 * Windows: of the new blocks that none has shown, the large ones that were not traced. The
 * interpreter's count alone tells of them: so many at least, of unknown size.
 */
uint64_t not_seen_sizeless(const struct snapshot_meta *meta);

/* How slow a process is, of whose CPU time the probes take a share. */

#define COST_BRIEF_NS 100000000ull /* CPU times below have more digits */
/* Of one that took less of a CPU, the budget of windows is of that part (docs/overhead.md). */
#define COST_FIFTH  5
#define COST_SLOWED 0.4 /* from there on "to 1/2" and so on say more than the share */
#define COST_TEXT   24

/*
 * A share of CPU time: "16 %"; beyond what an estimate can tell apart "more than 95 %". Of the
 * share of probes, to what they slow a process: "1/3", "less than 1/20".
 */
const char *cost_share_text(char out[COST_TEXT], double share);
const char *cost_slowed_text(char out[COST_TEXT], double share);
