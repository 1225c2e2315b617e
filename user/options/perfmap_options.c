/* SPDX-License-Identifier: Apache-2.0 */
#include "options/perfmap_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"

enum { KEY_MERGE = 0x400, KEY_INSTALL, KEY_FOLLOW, KEY_STATUS, KEY_SYMBOL, KEY_BUDGET };

#define BUDGET_DEFAULT (1ull << 30)

static const struct argp_option options[] = {
	{"pid", 'p', "PID[,PID...]", 0,
	 "running processes, and the children that they fork; with -c, by their ids in the "
	 "container",
	 1},
	{"container", 'c', "CONTAINER", 0,
	 "the processes of a container, as with tracer -c (repeatable)", 1},
	{"merge", KEY_MERGE, NULL, 0,
	 "begin with the map file that the process has written so far, and those that it was "
	 "forked from",
	 2},
	{"perf-map-symbol", KEY_SYMBOL, "FILE:SYMBOL[:addr=ARG,size=ARG,name=ARG]", 0,
	 "a function that names code, like PyUnstable_WritePerfMapEntry (repeatable); ARG counts "
	 "its arguments from 1 (default 1, 2, 3)",
	 2},
	{"duration", 'd', "SEC", 0, "stop after SEC seconds", 2},
	{"output", 'o', "FILE", 0, "write the map there (default: on stdout, at the end)", 3},
	CLI_OPTION_FORCE(3),
	{"install", KEY_INSTALL, NULL, 0,
	 "write the map to /tmp/perf-PID.map, where perf looks for it: under the process id here, "
	 "and under the one in its own PID namespace in its own /tmp; what a file of the "
	 "process's own lacks is appended to it",
	 3},
	{"follow", KEY_FOLLOW, NULL, 0,
	 "keep the written map current, instead of writing it only at start and end", 3},
	{"status", KEY_STATUS, NULL, 0,
	 "print the state of each process: now if no other output is asked for, else at the end",
	 3},
	{"buffer", 'b', "BYTES", 0, "ring buffer, a power of two (default 64M)", 4},
	{"budget", KEY_BUDGET, "BYTES", 0,
	 "memory for all maps (default 1G, 0: no limit); beyond it, maps of ended children are "
	 "dropped, and entries that do not fit are counted",
	 4},
	{"quiet", 'q', NULL, 0, "print no remarks on stderr", 5},
	{"verbose", 'v', NULL, 0, "print more remarks", 5},
	{0},
};

static error_t symbol_parse(struct perfmap_options *out, const char *arg)
{
	int err = array_reserve(&out->symbols, &out->symbol_capacity, out->symbol_count, 1,
				sizeof(*out->symbols));

	if (!err)
		err = perfmap_symbol_parse(arg, &out->symbols[out->symbol_count]);
	if (err) {
		error_print(err, "for example libjit.so:register_code:addr=1,size=2,name=3",
			    "--perf-map-symbol");
		return CLI_REPORTED;
	}
	out->symbol_count++;
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct perfmap_options *out = state->input;

	switch (key) {
	case 'p':
		if (cli_parse_pids(arg, &out->targets.pids, &out->targets.pid_count)) {
			error_print(-EINVAL, "one or more process ids, separated by commas",
				    "--pid");
			return CLI_REPORTED;
		}
		return 0;
	case 'c':
		return -target_set_container(&out->targets, arg);
	case 'd':
		return cli_take_seconds("--duration", arg, &out->duration_ns);
	case CLI_KEY_FORCE:
		out->replace = OUTFILE_ANY;
		return 0;
	case 'o':
		out->output = arg;
		return 0;
	case 'b':
		return cli_parse_buffer(arg, &out->session.ring_bytes);
	case KEY_BUDGET:
		if (cli_parse_bytes(arg, &out->session.budget))
			return cli_reject("--budget", arg, "a number of bytes, for example 256M");
		return 0;
	case KEY_MERGE:
		out->session.merge = 1;
		return 0;
	case KEY_INSTALL:
		out->install = 1;
		return 0;
	case KEY_FOLLOW:
		out->follow = 1;
		return 0;
	case KEY_STATUS:
		out->status = 1;
		return 0;
	case KEY_SYMBOL:
		return symbol_parse(out, arg);
	case 'q':
		log_level = 0;
		return 0;
	case 'v':
		log_level = 2;
		return 0;
	}
	return cli_parse_arguments(key, state, &out->command);
}

static int reject_usage(const char *why, const char *remedy, const char *what)
{
	error_print(error_set(-EINVAL, "%s", why), remedy, "%s", what);
	return EXIT_USAGE;
}

int perfmap_options_single(const struct perfmap_options *options)
{
	return !options->install && (options->output || !options->status);
}

int perfmap_options_parse(int argc, char **argv, struct perfmap_options *out)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "-p PID\n-- COMMAND ARG...",
		.doc = "Rebuilds the perf map of a process from outside: the addresses of the "
		       "functions of Python's trampolines (-X perf, -X perf_jit), of JITs that use "
		       "GDB's interface or jitdumps, and of programs that write a map. It runs "
		       "until Ctrl-C or the end of the process.",
	};
	int status;

	memset(out, 0, sizeof(*out));
	out->session.budget = BUDGET_DEFAULT;
	status = cli_parse(&argp, argc, argv, ARGP_IN_ORDER, out);
	if (status)
		return status;
	/* What was written so far is its state. */
	out->session.merge |= out->status && !out->install && !out->output && !out->command.count;
	out->session.symbols = out->symbols;
	out->session.symbol_count = out->symbol_count;
	if (target_set_is_empty(&out->targets) == !out->command.count)
		return reject_usage(
			out->command.count ? "either a running process or a command can be the "
					     "target, not both"
					   : "no target is named",
			"tracer perfmap -p PID, or tracer perfmap -- COMMAND ARG...", "perfmap");
	if (out->output && out->install)
		return reject_usage("a map is either written to a file or installed",
				    "choose one of -o and --install", "perfmap");
	if (perfmap_options_single(out) && out->targets.pid_count > 1)
		return reject_usage("a map describes one process", "name one, or use --install",
				    "--pid");
	if (out->follow && !out->install && (!out->output || !strcmp(out->output, "-")))
		return reject_usage("there is no file to keep current", "add -o FILE or --install",
				    "--follow");
	return 0;
}

void perfmap_options_free(struct perfmap_options *options)
{
	target_set_free(&options->targets);
	for (size_t i = 0; i < options->symbol_count; i++)
		perfmap_symbol_free(&options->symbols[i]);
	free(options->symbols);
}
