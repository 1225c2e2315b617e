/* SPDX-License-Identifier: Apache-2.0 */
/* A run of tracer [trace], shared by trace.c and trace_command.c only. */
#ifndef TRACER_CMD_TRACE_RUN_H
#define TRACER_CMD_TRACE_RUN_H

#include "cmd/options/progress.h"
#include "cmd/options/signals.h"
#include "cmd/options/targets.h"
#include "cmd/options/trace_options.h"
#include "cmd/trace_view.h"
#include "proc/launch.h"
#include "session/ctl/live.h"

struct run {
	struct trace_options options;
	struct session *session;
	struct launch *launch;
	struct outfile *output, *capture, *record;
	struct live live;
	struct targets targets;
	int signals; /* signals_catch() */
	int status;  /* exit status of the command */
	int unseen;  /* it has ended, and its programs had before they were examined */
	int hurried; /* a signal has requested the end */
	struct late command;
	unsigned int command_looks;
	int command_refused; /* what it loaded cannot be traced; this has been reported */
	uint64_t start_ns, next_print_ns, next_judge_ns;
	struct progress progress;
	struct trace_view view;
	int limited; /* the time of -d has started */
};

/*
 * Starts the command, and returns once it is traced. 0, or an error that was reported; run->status
 * is set if it has ended.
 */
int run_command(struct run *run);
/* Prints the probe plan of a process on stdout. 0, -errno. */
int run_plan_show(pid_t pid, const struct plan_target_opts *opts);
/* Opens the control socket, before the message that the session has attached. */
void run_open(struct run *run);
/* Do the targets have the functions of --alloc? 0, or an error that was reported. */
int run_allocs_check(struct run *run);
/* Says on stderr how many programs ended before they were inspected, if any. */
void run_unexamined_print(const struct run *run);
/* Waits for events, but not for long. */
void run_wait(struct run *run, int busy);

#endif
