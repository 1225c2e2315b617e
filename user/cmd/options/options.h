/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the subcommands share: parsing of command lines, common options, exit statuses, and reading
 * and writing of snapshot files.
 */
#pragma once

#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "report/report.h"
#include "runtime/cpython/labels.h"
#include "snapshot/ages.h"
#include "snapshot/frames/view.h"
#include "util/array.h"
#include "util/outfile.h"

/* The option of each command that writes a file; group: of its help. Its key sets a flag. */
#define CLI_KEY_FORCE 0x7f0
#define CLI_OPTION_FORCE(group)                                                                    \
	{                                                                                          \
		"force", CLI_KEY_FORCE, NULL, 0,                                                   \
			"replace the file even if tracer has not written it", group                \
	}

/* Of a command that prints to a terminal: report_choice_verbose(). */
#define CLI_OPTION_VERBOSE(group)                                                                  \
	{                                                                                          \
		"verbose", 'v', NULL, 0,                                                           \
			"on a terminal: all that is known of what was not seen, not one line",     \
			group                                                                      \
	}

/*
 * docs/man/exit-status.md. EXIT_FOUND: what --fail-on or --fail-above asks about is so.
 * EXIT_INCOMPLETE: --require-complete was given, and something is missing; it comes before
 * EXIT_FOUND, which such figures do not tell.
 */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_FOUND = 3, EXIT_INCOMPLETE = 4 };

/* The option of commands whose figures may be incomplete; group: of its help. */
#define CLI_KEY_REQUIRE_COMPLETE 0x7f1
#define CLI_OPTION_REQUIRE_COMPLETE(group)                                                         \
	{                                                                                          \
		"require-complete", CLI_KEY_REQUIRE_COMPLETE, NULL, 0,                             \
			"exit with status 4 if figures are incomplete, and say why", group         \
	}

struct layer_choice {
	int layer; /* enum event_layer: the only layer to report; -1: all layers */
	int at_peak;
};

/* --older-than, --younger-than and --born; the input is a struct ages_choice, set by the parser. */
struct ages_choice {
	struct ages ages;
	const char *born; /* what times of day mean depends on the snapshot; borrowed, NULL: none */
};
extern const struct argp cli_ages_argp;
/*
 * "context NAME" and "local FUNCTION:NAME", in one argument or in two, of --by. 0, or what a parser
 * is to return after a message.
 */
bool cli_is_label(const char *arg);
error_t cli_parse_label(const char *arg, struct argp_state *state, struct label_spec *out);
/* The option of commands that make snapshots; group: of its help. */
#define CLI_KEY_AGES 0x7f2
#define CLI_OPTION_AGES(text, group)                                                               \
	{                                                                                          \
		"ages", CLI_KEY_AGES, NULL, 0, text, group                                         \
	}

/*
 * argp children with a struct report_choice as input: the options of every command that prints a
 * report (--group-by, --cumulative, --source, the filters, the application and the output), and of
 * commands that print other figures (--top, --format: text, json and csv; cli_figures_argp: without
 * csv; cli_graphs_argp: in its place what graphs of heaps are written as).
 * The input of the filters alone is a struct filter_choice, that of --app and --mine a zeroed
 * struct app.
 */
struct filter_choice {
	struct filters filters;
	int all_frames;
};
struct report_choice {
	struct report_opts opts; /* its filters are set from `filter` */
	enum group_by group;     /* used unless --by names an owner */
	struct label_spec label; /* of GROUP_LABEL; its text is opts.label */
	int lines_asked;         /* an option about frames was given */
	struct filter_choice filter;
	struct app app;
	struct view_choice view;
	/* of commands that make the snapshot; blocks of other ages are dropped before the report */
	struct ages_choice ages;
	/* the processes are being traced: source lines are searched in their roots */
	int live;
	FILE *out; /* borrowed: stdout, unless the snapshot is written there */
	enum { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV, FORMAT_HEAPSNAPSHOT, FORMAT_PPROF } format;
	int format_asked; /* --format was given */
	int verbose;      /* -v was given */
	int require_complete;
	int64_t *size_diff; /* set to the total's, of a comparison; NULL: not wanted */
	char next[512];     /* of opts.next */
	struct layer_choice layer;
};
/* --layer and --at-peak, for commands that read snapshots; the input is a struct layer_choice. */
extern const struct argp cli_layer_argp;
extern const struct argp cli_report_argp, cli_output_argp, cli_figures_argp, cli_graphs_argp;
extern const struct argp cli_filter_argp, cli_app_argp;
/* --alloc-wrapper, --no-skip, --full-names; the input is a zeroed struct view_choice. */
extern const struct argp cli_view_argp;
/*
 * --pid, --no-inline and those of ages, for commands that read snapshots: what of them is read.
 * The input is a zeroed struct pid_choice.
 */
struct pid_choice {
	struct ages_choice ages; /* cli_ages_argp is part of the options */
	uint32_t *pids;
	size_t count, capacity;
	int no_inline; /* without inlined frames */
	/* the time or range in a recording; NULL: the last one, or as the file's name says */
	const char *at;
	/* of a range: the layer whose totals are compared; borrowed; NULL: the first one */
	const struct layer_choice *layer;
};
extern const struct argp cli_pid_argp;
void pid_choice_free(struct pid_choice *choice);
void report_choice_default(struct report_choice *choice);
/*
 * Announces the file that the snapshot is written to (NULL: none). For "-", stdout, the report is
 * printed on stderr.
 */
void report_choice_extra(struct report_choice *choice, const char *snapshot);
/*
 * The command that follows a report of that file: what leads to its lines; then a page with all of
 * it. None if a shell would not take the name as it is.
 */
void report_choice_next(struct report_choice *choice, const char *path);
/* -v: nothing is left out on a terminal. */
void report_choice_verbose(struct report_choice *choice);
void report_choice_free(struct report_choice *choice);
/* Prints to choice->out. EXIT_DONE; EXIT_FAILED or EXIT_USAGE after an error message. */
int cli_report_print(const struct snapshot *snapshot, const struct report_choice *choice);
/* The same of the blocks of report_choice.ages. */
int cli_ages_report(const struct snapshot *snapshot, const struct report_choice *choice);
/* Drops blocks of other ages. name: of the snapshot, for messages. 0; -errno after a message. */
int cli_ages_keep(struct snapshot *snapshot, const struct ages_choice *choice, const char *name);
/* What is meant at a moment (CLOCK_REALTIME), with --born. 0, -EINVAL (error_set). */
int cli_ages_at(const struct ages_choice *choice, uint64_t moment_ns, struct ages *out);
/*
 * The status of a report of that snapshot, as it is now or EXIT_INCOMPLETE after a message. name:
 * of its file; NULL: it has none.
 */
int cli_require_complete(const struct report_choice *choice, const struct snapshot *snapshot,
			 const char *name, int status);
/* The same after why something is missing. */
int cli_incomplete(const char *name, const char *why);
/* Says on stderr if most of the bytes have tracebacks that were cut, and how to keep more. */
void cli_cut_print(const struct snapshot *snapshot);
/*
 * Reports on stderr the processes that are missing from the report, if there are any
 * (trace_dropped()).
 */
struct trace;
void cli_dropped_print(const struct trace *trace);
/*
 * A view of the snapshot with one layer, or at its peak, which borrows from it. 0; -ENOENT if it
 * lacks that (error_set).
 */
int cli_layer_choose(const struct snapshot *snapshot, const struct layer_choice *choice,
		     struct snapshot *out);
/* cli_snapshot_load(), reduced to the chosen processes, if there are any, and frames. */
int cli_snapshot_pick(const char *path, const struct pid_choice *choice, struct snapshot **out);

/* The remedy for an error in finding or reading a process; NULL: none is known. */
const char *cli_remedy(int err);

/* A parser returns it after it has printed the error itself. */
#define CLI_REPORTED ECANCELED

/* The arguments after the options; borrowed from argv. */
struct cli_arguments {
	char **items;
	size_t count;
};

/*
 * Parses with argp. 0; EXIT_USAGE after a message; -1 after --help or --usage was printed (exit
 * with 0). argp itself never ends the process. A parser of a command with arguments passes unknown
 * keys to cli_parse_arguments(), which stores them all in `arguments`.
 */
int cli_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input);
error_t cli_parse_arguments(int key, struct argp_state *state, struct cli_arguments *arguments);

/* Is it in the list? */
int pids_have(const pid_t *pids, size_t count, pid_t pid);
/* Adds it to a list as of cli_parse_pids(), unless it is there. 0, -ENOMEM. */
int pids_add(pid_t **pids, size_t *count, pid_t pid);
/*
 * Adds the process ids of "1,2,3" to a list that the caller frees, at first NULL and 0: an option
 * that is repeated adds to it. 0; -EINVAL (error_set); -ENOMEM.
 */
int cli_parse_pids(const char *text, pid_t **pids, size_t *count);
/* "64K", "8M", "1G" or bytes. 0, -EINVAL. */
int cli_parse_bytes(const char *text, uint64_t *bytes);
/*
 * Prints that arg is not a value of the option, and the remedy (NULL: see --help). Returns what a
 * parser is to return.
 */
error_t cli_reject(const char *option, const char *arg, const char *remedy);
struct cli_word {
	const char *name;
	int value;
};
#define CLI_WORD_NAMES 256u
/* The value of the word that text is, among count words. false: it is none; names: "a, b or c". */
bool cli_word_find(const struct cli_word *words, size_t count, const char *text, int *value,
		   char names[CLI_WORD_NAMES]);
/* The same of an option. 0; what a parser is to return, after a message that lists the words. */
error_t cli_parse_word(const char *option, const char *arg, const struct cli_word *words,
		       size_t count, int *value);
/* The same of an array of words, to a variable that may be of an enum. */
#define CLI_WORD(option, arg, words, variable)                                                     \
	({                                                                                         \
		int word_ = 0;                                                                     \
		error_t err_ =                                                                     \
			cli_parse_word((option), (arg), (words), ARRAY_SIZE(words), &word_);       \
		if (!err_)                                                                         \
			(variable) = word_;                                                        \
		err_;                                                                              \
	})
/* The --buffer of a session: a power of two from 4K to 2G. 0, or what a parser is to return. */
error_t cli_parse_buffer(const char *arg, size_t *bytes);
/* A decimal number in [low, high] without trailing text. 0, -EINVAL. */
int cli_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *number);
/* Seconds with a fraction ("2.5"), or with a unit: ms, s, m, min, h, d; above 0. 0, -EINVAL. */
int cli_parse_seconds(const char *text, uint64_t *ns);
/* The same, or 0. */
int cli_parse_pause(const char *text, uint64_t *ns);
/* "5", "0.5" or "5%". 0, -EINVAL. */
int cli_parse_percent(const char *text, double *percent);
/* cli_parse_seconds() for an option, with an error message. 0, or what a parser is to return. */
error_t cli_take_seconds(const char *option, const char *arg, uint64_t *ns);
