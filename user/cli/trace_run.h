/* SPDX-License-Identifier: Apache-2.0 */
/* A run of tracer [trace], shared by trace.c and trace_command.c only. */
#ifndef TRACER_CLI_TRACE_RUN_H
#define TRACER_CLI_TRACE_RUN_H

#include "cli/live.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/targets.h"
#include "cli/trace_options.h"
#include "process/launch.h"

struct run {
	struct trace_options options;
	struct session *session;
	struct launch *launch;
	struct outfile *output, *capture;
	struct live live;
	struct targets targets;
	int signals; /* signals_catch() */
	int status;  /* of the command */
	int hurried; /* a signal has asked for the end */
	struct late command;
	unsigned int command_looks;
	int command_refused; /* what it loaded cannot be traced: that has been told */
	uint64_t start_ns, next_print_ns;
	struct progress progress;
	int limited; /* the time of -d has begun */
};

/*
 * Starts the command, and returns once it is under trace. 0, or an error that was told; run->status
 * if it has ended.
 */
int run_command(struct run *run);
/* The probe plan of a process, on stdout. 0, -errno. */
int run_plan_show(pid_t pid, const struct plan_target_opts *opts);
/* It can be talked to from before anybody is told that it has attached. */
void run_open(struct run *run);
/* Have the targets the functions that the user names? 0, or an error that was told. */
int run_allocs_check(struct run *run);
/* Until something happens, but not for long. */
void run_wait(struct run *run, int busy);

#endif
