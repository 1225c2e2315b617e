/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What asks for evidence of a process that lives: words separated by commas, each kind once.
 *
 *   90%            of the nearest memory limit is used (1% to 100%)
 *   2G             RSS of a process, in bytes (from 1M on)
 *   500M/10m       RSS of a process has grown by so much within that time (1s to 24h)
 *   pressure:20%   of the time a task of the cgroup waits for memory (PSI, "some avg10")
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum trigger_kind { TRIGGER_SHARE, TRIGGER_RSS, TRIGGER_GROWTH, TRIGGER_PRESSURE, TRIGGER_KINDS };
#define TRIGGER_FORMS "90% of the limit, 2G of RSS, 500M/10m or pressure:20%"

struct trigger {
	double value;     /* of the limit, or of the time, 0 to 1; bytes; 0: there is none */
	uint64_t span_ns; /* TRIGGER_GROWTH */
	char text[24];    /* as it was written */
};

struct triggers {
	struct trigger items[TRIGGER_KINDS];
};

/* 0; -EINVAL (error_set): which word, and why. */
int triggers_parse(const char *text, struct triggers *out);
bool triggers_any(const struct triggers *triggers);

/* RSS at times of the last span_ns: the least of them tells how much it has grown. */
#define TRIGGER_SAMPLES 16u
struct trigger_past {
	uint64_t bytes[TRIGGER_SAMPLES]; /* a ring */
	uint64_t next_ns;                /* CLOCK_MONOTONIC */
	unsigned int count, next;
};

/* Notes it if it is time to. How much it is above the least one. Zero-initialise past. */
uint64_t trigger_past_growth(struct trigger_past *past, const struct trigger *growth, uint64_t rss,
			     uint64_t now_ns);
