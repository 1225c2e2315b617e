/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cli.h"
#include "cmd/options/options.h"
#include "util/array.h"
#include "util/error.h"
#include "util/near.h"

/*
 * jemalloc's settings: one thread of each process allocates, and what an attach has needed for a
 * moment is given back soon, since a session may run for months.
 */
extern const char *malloc_conf;
const char *malloc_conf = "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0";

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *synopsis, *help;
} commands[] = {
	{"trace", cli_trace, "[trace] -p PID|-c CONTAINER|-a|-- COMMAND...",
	 "trace processes (the word is optional)"},
	{"report", cli_report, "report FILE...", "statistics of a snapshot, ours or tracemalloc's"},
	{"diff", cli_diff, "diff OLD NEW", "what has grown and shrunk between two snapshots"},
	{"timeline", cli_timeline, "timeline FILE", "a recording over time"},
	{"leaks", cli_leaks, "leaks FILE|-p PID|-c CONTAINER",
	 "which lines grow, and how sure that is"},
	{"filter", cli_filter, "filter FILE -o OUT", "the snapshot of some files, lines, domains"},
	{"export", cli_export, "export FILE --format KIND -o OUT", "a snapshot in another format"},
	{"serve", cli_serve, "serve FILE...|-p PID", "heaps and snapshots in a browser"},
	{"replay", cli_replay, "replay CAPTURE", "tables from a recorded event stream, no root"},
	{"ctl", cli_ctl, "ctl PID status|snapshot FILE|stop...",
	 "talk to the session that traces a process"},
	{"list", cli_list, "list", "processes that can be traced"},
	{"heap", cli_heap, "heap -p PID", "what is on a process's heap, by type; no probe"},
	{"memory", cli_memory, "memory -p PID", "what a process's RSS consists of; no probe"},
	{"perfmap", cli_perfmap, "perfmap -p PID | -- COMMAND ARG...",
	 "names of code that is generated at run time, for perf"},
	{"agent", cli_agent, "agent --config FILE",
	 "watch a machine: evidence when memory runs out, metrics"},
	{"fleet", cli_fleet, "fleet FILE...", "what the snapshots of many machines have in common"},
	{"doctor", cli_doctor, "doctor", "what this kernel and these privileges allow"},
};

static void usage_print(FILE *out)
{
	fprintf(out, "Shows which line of which file owns the memory of a running Python "
		     "process.\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  tracer %-44s %s\n", commands[i].synopsis, commands[i].help);
	fprintf(out, "\nEach command has --help. tracer --version prints the version.\n");
}

/* Is there such a program, by its path or on PATH? */
static bool is_program(const char *name)
{
	const char *path = getenv("PATH");
	char file[PATH_MAX];

	if (strchr(name, '/'))
		return !access(name, X_OK);
	while (path && *path) {
		size_t bytes = strcspn(path, ":");

		snprintf(file, sizeof(file), "%.*s/%s", (int)bytes, path, name);
		if (!access(file, X_OK))
			return 1;
		path += bytes + (path[bytes] == ':');
	}
	return 0;
}

/* The word may be a process id or a program whose option was left out, or a command, mistyped. */
static int command_unknown(const char *word)
{
	struct near near = {.word = word};
	char remedy[256] = "tracer --help lists them";
	uint64_t pid;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		near_offer(&near, commands[i].name);
	if (!cli_parse_number(word, 1, 1 << 22, &pid))
		snprintf(remedy, sizeof(remedy), "did you mean tracer -p %s?", word);
	else if (near.best)
		snprintf(remedy, sizeof(remedy), "did you mean tracer %s?", near.best);
	else if (is_program(word))
		snprintf(remedy, sizeof(remedy), "did you mean tracer -- %s ...?", word);
	error_print(error_set(-EINVAL, "no such command"), remedy, "%s", word);
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		usage_print(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage_print(stdout);
		return EXIT_DONE;
	}
	if (!strcmp(argv[1], "--print-commands")) {
		for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
			printf("%s\t%s\n", commands[i].name, commands[i].help);
		return EXIT_DONE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		cli_version_print();
		return EXIT_DONE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	if (argv[1][0] != '-')
		return command_unknown(argv[1]);
	return cli_trace(argc, argv);
}
