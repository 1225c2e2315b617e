/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What windows of probes have shown (struct snapshot_windows). Nothing is printed if probes were on
 * all the time.
 */
#pragma once

#include <stdio.h>

#include "snapshot/snapshot.h"

/*
 * "TITLE: 61, probes on for 4.0 % of the time; they have shown 3.1 % of 5,210 new blocks alive; …".
 * title: "Windows", or of which of two compared snapshots. more_s: for how many seconds more they
 * must go on until the largest lines are known well enough (snapshot/group/precision.h); 0: they
 * are.
 */
void windows_print(FILE *out, const struct snapshot_meta *meta, const char *title, double more_s);
#define WINDOWS_MORE_BYTES 64
/*
 * "about 3 min more for ±20 %"; "" if more_s is 0. aim: the standard error by size. Returns out.
 */
char *windows_more_text(char out[WINDOWS_MORE_BYTES], double more_s, double aim);
/*
 * How long the windows of a snapshot went on, or its sample: seconds. Processes that are traced
 * side by side take no longer than one.
 */
double windows_seconds(const struct snapshot *snapshot);
/*
 * "allocated: 4.1 GiB in 62.0 s, an estimate from windows, which have seen 1.1 % of that: 95 %
 * interval …". Nothing if it is not known.
 */
void windows_allocated_print(FILE *out, const struct snapshot_meta *meta);
/* What of the older blocks is not attributed, as the end of a line. */
void windows_older_print(FILE *out, const struct snapshot_meta *meta);
/* '"windows": {"count": …, "time_share": …, "blocks_share": …, "unseen": {…}}, ' */
void windows_json(FILE *out, const struct snapshot_meta *meta);
/* ', "unseen": {"size": …, "count": …}' of the older blocks. */
void windows_older_json(FILE *out, const struct snapshot_meta *meta);
