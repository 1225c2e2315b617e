/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands, one file each. A command gets its own argc and argv (argv[0] is its name),
 * prints results on stdout and everything else on stderr, and returns the exit status: 0 done, 1 it
 * failed while running, 2 wrong usage; tracing a command, that command's own status.
 */
#ifndef TRACER_CLI_CLI_H
#define TRACER_CLI_CLI_H

#include <argp.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/outfile.h"
#include "report/report.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

int cli_trace(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_diff(int argc, char **argv);
int cli_filter(int argc, char **argv);
int cli_export(int argc, char **argv);
int cli_replay(int argc, char **argv);
int cli_list(int argc, char **argv);
int cli_heap(int argc, char **argv);
int cli_perfmap(int argc, char **argv);
int cli_ctl(int argc, char **argv);
int cli_doctor(int argc, char **argv);

/*
 * Children of argp, whose input is a struct report_choice: the options of every command that prints
 * a report (--group-by, --cumulative, --source, those of the filters, of the application and of the
 * output), and of those that print other figures (--top, --format; FORMAT_CSV is theirs to refuse).
 * Of the filters alone the input is a struct filter_choice, of --app and --mine a zeroed struct
 * app.
 */
struct filter_choice {
	struct filters filters;
	int all_frames;
};
struct report_choice {
	struct report_opts opts; /* its filters are set from these: */
	enum group_by group;     /* where no owner is asked for */
	int lines_asked;         /* for an option that is of frames */
	struct filter_choice filter;
	struct app app;
	/* of processes that are traced now: source lines are looked for in their roots */
	int live;
	FILE *out; /* borrowed: stdout, unless that is where a snapshot goes */
	enum { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV } format;
	int layer; /* enum event_layer: the only one that is wanted; -1: all that there are */
};
/* Of commands that read snapshots: --layer, into an int as in struct report_choice. */
extern const struct argp cli_layer_argp;
extern const struct argp cli_report_argp, cli_output_argp, cli_filter_argp, cli_app_argp;
/*
 * Of commands that read snapshots of several processes: --pid; the input is a zeroed struct
 * pid_choice.
 */
struct pid_choice {
	uint32_t *pids;
	size_t count, room;
};
extern const struct argp cli_pid_argp;
void pid_choice_free(struct pid_choice *choice);
void report_choice_default(struct report_choice *choice);
/*
 * The snapshot goes to that file (NULL: to none): of "-", which is stdout, the report makes room on
 * stderr.
 */
void report_choice_beside(struct report_choice *choice, const char *snapshot);
void report_choice_free(struct report_choice *choice);
/* Prints to choice->out; EXIT_DONE, EXIT_FAILED or EXIT_USAGE after an error message. */
int cli_report_print(const struct snapshot *snapshot, const struct report_choice *choice);
/* Says on stderr what processes are not in the report, if there are any (trace_dropped()). */
struct trace;
void cli_dropped_print(const struct trace *trace);
/* Reads a snapshot of any kind: 0, or -errno after an error message. */
int cli_snapshot_load(const char *path, struct snapshot **out);
/*
 * The snapshot with that layer alone (-1: as it is), which borrows from it. 0; -ENOENT it has none
 * (error_set).
 */
int cli_layer_choose(const struct snapshot *snapshot, int layer, struct snapshot *out);
/* The same, and of it the processes that are chosen, if any are. */
int cli_snapshot_pick(const char *path, const struct pid_choice *choice, struct snapshot **out);
/* Writes a snapshot's file and commits it. 0, -errno. */
int cli_snapshot_save(const struct snapshot *snapshot, struct outfile *file);

/* What helps against an error in finding or reading a process; NULL: nothing known. */
const char *cli_remedy(int err);

/* What a parser returns after it has printed what is wrong itself. */
#define CLI_REPORTED ECANCELED

/* What stands behind the options; borrowed from argv. */
struct cli_arguments {
	char **items;
	size_t count;
};

/*
 * Parses with argp: 0; EXIT_USAGE after a message; -1 when --help or --usage has been printed
 * (leave with 0). argp itself never ends the process. A parser ends with cli_parse_arguments() for
 * the keys it does not know, if it takes arguments; then they are all in there.
 */
int cli_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input);
error_t cli_parse_arguments(int key, struct argp_state *state, struct cli_arguments *arguments);

/* "1,2,3" -> process ids. 0; -EINVAL (error_set). Caller frees. */
int cli_parse_pids(const char *text, pid_t **pids, size_t *count);
/* "64K", "8M", "1G" or bytes. 0, -EINVAL. */
int cli_parse_bytes(const char *text, uint64_t *bytes);
/*
 * Says which value the option does not have, and the remedy (NULL: --help); what a parser is to
 * return.
 */
error_t cli_reject(const char *option, const char *arg, const char *remedy);
/* The --buffer of a session: a power of two from 4K to 2G. 0, or what a parser returns. */
error_t cli_parse_buffer(const char *arg, size_t *bytes);
/* A decimal number of [low, high], nothing behind it. 0, -EINVAL. */
int cli_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *number);
/* Seconds, with a fraction ("2.5"), greater than 0. 0, -EINVAL. */
int cli_parse_seconds(const char *text, uint64_t *ns);
/* Those that an option takes. 0, or what a parser returns. */
error_t cli_take_seconds(const char *option, const char *arg, uint64_t *ns);

#endif
