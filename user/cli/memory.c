/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/stream.h"
#include "cli/cli.h"
#include "kernel/calls.h"
#include "kernel/privileges.h"
#include "memory_answers/memory_print.h"
#include "options/options.h"
#include "options/targets.h"

struct memory_choice {
	struct report_choice output;
	pid_t *pids;
	size_t pid_count;
	int freeze, swap_in;
	struct cli_arguments rest;
};

enum { KEY_FREEZE = 0x300, KEY_SWAP_IN, KEY_NO_SWAP_IN };

static const struct argp_option options[] = {
	{"pid", 'p', "PID", 0, "the process", 1},
	{"freeze", KEY_FREEZE, NULL, 0, "stop the process while its memory is read", 2},
	{"swap-in", KEY_SWAP_IN, NULL, 0,
	 "also read memory that is swapped out, which brings it back", 2},
	{"no-swap-in", KEY_NO_SWAP_IN, NULL, OPTION_HIDDEN, NULL, 2}, /* as it is without */
	CLI_OPTION_VERBOSE(10),
	{0},
};

static const struct argp_child children[] = {{&cli_output_argp, 0, NULL, 0}, {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct memory_choice *choice = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &choice->output;
		return 0;
	case 'p':
		if (!cli_parse_pids(arg, &choice->pids, &choice->pid_count))
			return 0;
		error_print(-EINVAL, "tracer list shows what can be read", "--pid");
		return CLI_REPORTED;
	case 'v':
		report_choice_verbose(&choice->output);
		return 0;
	case KEY_FREEZE:
		choice->freeze = 1;
		return 0;
	case KEY_SWAP_IN:
	case KEY_NO_SWAP_IN:
		choice->swap_in = key == KEY_SWAP_IN;
		return 0;
	}
	return cli_parse_arguments(key, state, &choice->rest);
}

static int report_print(const struct memory_report *report, const struct memory_choice *choice)
{
	struct memory_usage found;
	const struct memory_usage *usage =
		memory_usage_read(report->info.pid, &found) ? NULL : &found;

	if (choice->output.format == FORMAT_JSON)
		memory_print_json(report, usage);
	else if (choice->output.format == FORMAT_CSV)
		memory_print_csv(report);
	else
		memory_print_text(report, usage, &choice->output.opts);
	return stream_flush(stdout);
}

static int memory_print(pid_t pid, const struct memory_choice *choice)
{
	struct memory_reading *reading;
	struct memory_report report;
	int err = memory_open(&reading, pid, choice->swap_in);

	if (err)
		return err;
	/* The files are open; reading them and the heaps needs fewer rights. */
	err = privileges_drop(0, 0) ?: calls_limit(choice->freeze ? CALLS_FREEZE : 0);
	if (!err)
		err = memory_read_report(reading, choice->freeze, &report);
	if (!err) {
		err = report_print(&report, choice);
		memory_report_free(&report);
	}
	memory_close(reading);
	return err;
}

int cli_memory(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Prints what the resident memory (RSS) of a process consists of, as a tree "
		       "that adds up: Python's heap, malloc's, stacks, files. It is read from "
		       "outside: no probe is placed.",
		.children = children,
	};
	struct memory_choice choice = {0};
	int status, err;

	report_choice_default(&choice.output);
	status = cli_parse(&argp, argc, argv, 0, &choice);
	if (status) {
		status = status < 0 ? EXIT_DONE : status;
	} else if (choice.pid_count != 1 || choice.rest.count) {
		error_print(error_set(-EINVAL, "it reads one process, which -p names"),
			    "tracer memory -p PID", "memory");
		status = EXIT_USAGE;
	} else {
		targets_workers_print(choice.pids, 1, NULL, "part of this", 0);
		err = memory_print(choice.pids[0], &choice);
		if (err)
			pid_error_print(choice.pids[0], err);
		status = err ? EXIT_FAILED : EXIT_DONE;
	}
	free(choice.pids);
	return status;
}
