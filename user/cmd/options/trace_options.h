/* SPDX-License-Identifier: Apache-2.0 */
/* The options of "tracer trace". */
#pragma once

#include "cmd/evidence/evidence.h"
#include "cmd/options/options.h"
#include "proc/targets/target_set.h"
#include "session/session.h"

struct trace_options {
	struct target_set targets;         /* empty with a command */
	struct cli_arguments command;      /* none with targets */
	uint64_t duration_ns, interval_ns; /* 0: none */
	int duration_auto; /* duration_ns is the limit of a trace that ends when it knows enough */
	uint64_t snapshot_ns;                  /* between two snapshots; 0: only one, at the end */
	unsigned int keep;                     /* number of snapshots kept, in FILE, FILE.1, ... */
	uint64_t record_ns;                    /* between two snapshots of a recording */
	const char *output, *capture, *record; /* borrowed */
	/* --on-oom and --on-memory: evidence is kept instead of a trace; path NULL: none is */
	struct evidence_opts evidence;
	enum outfile_replace replace;
	int dry_run;
	/* a live view, on a terminal; 0: --no-live, or the output forbids it */
	int live;
	struct plan_alloc *allocs; /* owned; session.plan.native's */
	size_t alloc_count, alloc_capacity;
	int ages;           /* snapshots tell how old blocks are */
	int overhead_asked; /* --overhead is given; 0 is no limit */
	struct session_opts session;
	struct report_choice choice;
};

/*
 * Which processes are traced, and how: the part of the options that commands share which have
 * "tracer trace" run for them, and pass these on. Ends with a zeroed one.
 */
extern const struct argp_option trace_target_options[];
/*
 * Takes one of them that says which processes (-p, -c, --cgroup, --comm, -a, --wait). 0;
 * ARGP_ERR_UNKNOWN: it is none of these; errors of a parser, after a message.
 */
error_t trace_target_take(struct target_set *targets, int key, const char *arg);

/* 0; otherwise as cli_parse(). */
int trace_options_parse(int argc, char **argv, struct trace_options *out);
void trace_options_free(struct trace_options *options);
