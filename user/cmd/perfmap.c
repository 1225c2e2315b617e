/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer perfmap: attach, write the present map, follow the process until it ends, write the map
 * again.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/options/options.h"
#include "cmd/options/signals.h"
#include "cmd/options/targets.h"
#include "proc/launch.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "proc/targets/target_set.h"
#include "session/perfmap/perfmap_session.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/text.h"

/* --- perfmap options -------------------------------------------------------------------------- */

/* The options of "tracer perfmap". */

struct perfmap_options {
	struct target_set targets;      /* pids and containers; empty with a command */
	struct cli_arguments command;   /* none with targets */
	struct perfmap_symbol *symbols; /* owned */
	size_t symbol_count, symbol_capacity;
	const char *output; /* borrowed; NULL: none */
	enum outfile_replace replace;
	int install, follow, status;
	uint64_t duration_ns; /* 0: none */
	struct perfmap_session_opts session;
};

enum {
	KEY_MERGE = 0x400,
	KEY_INSTALL,
	KEY_FOLLOW,
	KEY_STATUS,
	KEY_SYMBOL,
	KEY_BUDGET,
	KEY_JITDUMP
};

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
	{"jitdump", KEY_JITDUMP, "DIR|FILE", 0,
	 "write names and code to DIR/jit-PID.dump, with tracer's own id, for perf inject --jit; "
	 "FILE is a second name of that file. perf record -k 1 must run meanwhile, of all "
	 "processes (-a) or of the target and tracer; includes --merge",
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
	int err = ARRAY_GROW(out->symbols, out->symbol_capacity, out->symbol_count)
			  ?: perfmap_symbol_parse(arg, &out->symbols[out->symbol_count]);

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
		out->replace = out->session.replace = OUTFILE_ANY;
		return 0;
	case KEY_JITDUMP:
		out->session.jitdump = arg;
		out->session.merge = 1;
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

/* Is the map of a single process written to stdout, since no other output is asked for? */
static bool is_printed(const struct perfmap_options *options)
{
	return !options->install && !options->output && !options->status &&
	       !options->session.jitdump;
}

/* Is the map of a single process written? */
static int perfmap_options_single(const struct perfmap_options *options)
{
	return options->output || is_printed(options);
}

/* Is nothing asked for but the present state? */
static bool is_status_only(const struct perfmap_options *options)
{
	return options->status && !options->install && !options->output &&
	       !options->session.jitdump && !options->command.count;
}

/* 0; otherwise as cli_parse(). perfmap_options_free() in any case. */
static int perfmap_options_parse(int argc, char **argv, struct perfmap_options *out)
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

	memset(out, 0, sizeof(*out));
	out->session.budget = BUDGET_DEFAULT;
	int status = cli_parse(&argp, argc, argv, ARGP_IN_ORDER, out);
	if (status)
		return status;
	/* What was written so far is its state. */
	out->session.merge |= is_status_only(out);
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

static void perfmap_options_free(struct perfmap_options *options)
{
	target_set_free(&options->targets);
	for (size_t i = 0; i < options->symbol_count; i++)
		perfmap_symbol_free(&options->symbols[i]);
	free(options->symbols);
}

/* --- perfmap status --------------------------------------------------------------------------- */

static const char *file_state(const struct perfmap_process *process)
{
	switch (process->file) {
	case PERFMAP_FILE_OPEN:
		return "open";
	case PERFMAP_FILE_CLOSED:
		return "closed";
	default:
		return "not known";
	}
}

/*
 * Prints on stdout the state of a process's map, as far as it is known, and the calls that were
 * seen.
 */
static void perfmap_status_print(const struct perfmap_target *target)
{
	const struct perfmap_process *process = target->process;
	size_t jitdumps = 0;

	printf("PID %d (", target->pid);
	text_print(stdout, target->name);
	printf(")%s\n", process->exited ? ", which has ended" : "");
	printf("  map file: /tmp/perf-%d.map in its own root, %s\n", target->ns_pid,
	       file_state(process));
	printf("  entries: %zu\n", perfmap_table_count(process->table));
	printf("  persistence after fork: %s\n",
	       process->persist < 0 ? "not set since the trace began (default: off)"
	       : process->persist   ? "on"
				    : "off");
	printf("  calls: Init %" PRIu64 " (%" PRIu64 " failed", process->inits,
	       process->init_failures);
	if (process->inits)
		printf(", the last returned %d", process->init_result);
	printf("), WritePerfMapEntry %" PRIu64 ", Fini %" PRIu64 ", CopyPerfMapFile %" PRIu64
	       ", CompileCode %" PRIu64 ", SetPersistAfterFork %" PRIu64 "\n",
	       process->writes, process->finis, process->copies, process->compiles,
	       process->persists);
	for (size_t i = 0; i < target->follow_count; i++)
		jitdumps += target->follows[i]->is_jitdump;
	printf("  JIT images: %zu registered; files followed: %zu, %zu of them jitdumps\n",
	       process->image_count, target->follow_count, jitdumps);
	printf("  entries whose memory was unmapped: %" PRIu64 "\n", process->expired);
}

static void caveat(const struct perfmap_target *target, uint64_t count, const char *what)
{
	if (count)
		log_info("PID %d: %" PRIu64 " %s", target->pid, count, what);
}

static void target_caveats(const struct perfmap_target *target)
{
	const struct perfmap_process *process = target->process;
	uint64_t refused = 0, cut = process->cut, failed = 0;

	for (size_t i = 0; i < target->follow_count; i++) {
		const struct perfmap_follow *follow = target->follows[i];

		refused += follow->is_jitdump ? follow->jitdump.refused : follow->text.refused;
		cut += follow->is_jitdump ? follow->jitdump.cut : follow->text.cut;
		failed += follow->failed || (follow->is_jitdump && follow->jitdump.lost);
	}
	caveat(target, process->missed, "entries are missing: their names could not be read");
	caveat(target, process->refused,
	       "entries were refused: no size, no name, beyond the address space, or too many");
	caveat(target, process->dropped,
	       "entries are missing: there was no memory for them (--budget)");
	caveat(target, refused, "lines or records of its files are not valid entries");
	caveat(target, cut, "names were cut at 4096 bytes");
	caveat(target, failed, "of its files could not be read to the end");
	caveat(target, target->follows_dropped, "more files of it are not read");
	caveat(target, process->files_failed, "map files that it copied could not be read");
	caveat(target, process->images_unreadable, "JIT images could not be read");
	for (int i = 0; i < 2; i++)
		if (target->places.at[i].conflicts)
			log_info("PID %d: %zu entries are not in %s: the process's own lines name "
				 "other code at their addresses, and stay as they are",
				 target->pid, target->places.at[i].conflicts,
				 target->places.at[i].shown);
	if (target->stale)
		log_info("PID %d: what is in its map file was written before it began, by an "
			 "earlier process with its id, and is left out",
			 target->pid);
	if (target->older)
		log_info("PID %d: its map file is older than the process: of the lines that were "
			 "there, those for memory that is not mapped are left out",
			 target->pid);
	if (target->orphaned)
		log_info("PID %d: it was forked by a process that has ended: functions from before "
			 "that may have no names",
			 target->pid);
	if (target->files_refused)
		log_info("PID %d: its map file was not read: %s", target->pid, target->file_reason);
}

static bool is_blind(const struct perfmap_session *session)
{
	for (size_t i = 0; i < perfmap_session_count(session); i++) {
		const struct perfmap_process *process = perfmap_session_at(session, i)->process;

		if (perfmap_table_count(process->table) || process->expired || process->refused ||
		    process->missed)
			return 0;
	}
	return 1;
}

/*
 * 0; -ENODATA: entries were written but none was seen, so that the map looks like that of a program
 * that writes none; -errno.
 */
static int perfmap_blind_check(const struct perfmap_session *session)
{
	__u64 counts[LOSS_COUNT];
	int err = perfmap_session_loss(session, counts);

	if (err || !counts[LOSS_MAP_ENTRY] || !is_blind(session))
		return err;
	return error_set(-ENODATA, "not one entry was seen: the ring buffer was full (lost: %llu)",
			 counts[LOSS_MAP_ENTRY]);
}

/* Prints on stderr what the maps of the processes lack, if anything. */
static void perfmap_not_seen_print(const struct perfmap_session *session)
{
	__u64 counts[LOSS_COUNT];
	size_t let_go = 0;

	for (size_t i = 0; i < perfmap_session_count(session); i++) {
		const struct perfmap_target *target = perfmap_session_at(session, i);

		target_caveats(target);
		if (target->named)
			perfmap_session_advise(perfmap_session_at(session, i));
		let_go += target->process->evicted != 0;
	}
	if (let_go)
		log_info("maps of ended processes that were dropped to free memory (--budget): %zu",
			 let_go);
	if (perfmap_session_loss(session, counts))
		return;
	if (counts[LOSS_MAP_ENTRY] && !is_blind(session))
		log_info(
			"%llu entries were lost: the ring buffer was full; a larger one (--buffer) "
			"helps",
			counts[LOSS_MAP_ENTRY]);
	if (counts[LOSS_MAP_CALL] + counts[LOSS_PROCESS])
		log_info("%llu other events were lost",
			 counts[LOSS_MAP_CALL] + counts[LOSS_PROCESS]);
}

/* Prints on stderr what the jitdump lacks. */
static void jitdump_caveats(const struct jitdump_out *jitdump)
{
	if (jitdump && jitdump->unread)
		log_info("%s: the code of %" PRIu64 " of %" PRIu64 " functions could not be read, "
			 "and is zeros: it was gone, or swapped out",
			 jitdump->path, jitdump->unread, jitdump->records);
	if (jitdump && jitdump->left_out)
		log_info("%s: %" PRIu64 " functions are left out: larger than 1 MiB, or beyond the "
			 "limit of the file, 1 GiB",
			 jitdump->path, jitdump->left_out);
}

/* --- perfmap ---------------------------------------------------------------------------------- */

#define POLL_BUSY_MS 2 /* between two polls of a ring buffer that had records */
#define POLL_IDLE_MS 20
#define MAX_WATCHED  64
/* between two writes of the same map; writing takes at most one FOLLOW_SHARE-th of the time */
#define FOLLOW_NS    200000000ull
#define FOLLOW_SHARE 20
#define WRAPPER_NS   300000000ull
#define DRAIN_MORE   (1 << 16) /* a full batch: more records are ready */

struct perfmap_run {
	struct perfmap_options options;
	struct perfmap_session *session;
	struct launch *launch;
	int signals;
	int status;        /* exit status of the command */
	uint64_t start_ns; /* start of the session; before that, of the command's last program */
	uint64_t written_ns, write_cost_ns;
	uint64_t version;    /* version of the table last written to -o; UINT64_MAX: never */
	int output_error;    /* of the last write to -o */
	bool jitdump_failed; /* that was printed */
};

static int bytes_write(void *context, const char *data, size_t bytes)
{
	return outfile_write(context, data, bytes);
}

/* Writes the map of the single process. */
static int output_write(struct perfmap_run *run, const char *path)
{
	const struct perfmap_table *table = perfmap_session_at(run->session, 0)->process->table;
	struct outfile *file;

	/* An empty map is written to a file that was asked for. */
	if (run->version == perfmap_table_version(table) ||
	    (!strcmp(path, "-") && !perfmap_table_count(table)))
		return 0;
	int err = outfile_open(&file, path, run->options.replace);
	if (err)
		return err;
	err = outfile_end(file, perfmap_text_write(table, bytes_write, file));
	if (err)
		return err;
	run->version = perfmap_table_version(table);
	run->options.replace = OUTFILE_ANY; /* the file is this run's */
	return 0;
}

/* Installs every process's map. An error is printed once, until it changes. */
static int maps_install(struct perfmap_run *run)
{
	int failed = 0;

	for (size_t i = 0; i < perfmap_session_count(run->session); i++) {
		struct perfmap_target *target = perfmap_session_at(run->session, i);
		int status = perfmap_session_install(run->session, target);

		if (status < 0 && status != target->install_error)
			error_print(status, "the existing file is unchanged", "PID %d",
				    target->pid);
		target->install_error = status < 0 ? status : 0;
		/* A target's own /tmp that is not accessible was reported at the attach. */
		failed |= status < 0 || (target->named && target->places.target < 0);
	}
	return failed ? -EIO : 0;
}

/* 0; -errno after a message, which is printed once, until it changes. */
static int maps_write(struct perfmap_run *run, int at_end)
{
	const struct perfmap_options *options = &run->options;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	int err = 0;

	if (options->install)
		err = maps_install(run);
	else if (options->output ? strcmp(options->output, "-") || at_end
				 : at_end && is_printed(options)) {
		err = output_write(run, options->output ? options->output : "-");
		if (err && err != run->output_error)
			error_print(err, "the existing file is unchanged", "%s",
				    options->output ? options->output : "stdout");
		run->output_error = err;
	}
	run->written_ns = clock_ns(CLOCK_MONOTONIC);
	run->write_cost_ns = run->written_ns - start_ns;
	return err;
}

/* How perf is to run, now that it finds the jitdump and what is in it so far. */
static void jitdump_announce(const struct perfmap_run *run)
{
	const struct jitdump_out *jitdump = perfmap_session_jitdump(run->session);
	char processes[48] = "-a";

	if (!jitdump)
		return;
	for (size_t i = 0;
	     perfmap_session_running(run->session) == 1 && i < perfmap_session_count(run->session);
	     i++) {
		const struct perfmap_target *target = perfmap_session_at(run->session, i);

		if (target->named && target->pidfd >= 0)
			snprintf(processes, sizeof(processes), "-p %d,%d", target->pid, getpid());
	}
	log_info("%s: %" PRIu64 " functions so far; now: perf record -k 1 %s", jitdump->path,
		 jitdump->records, processes);
}

/* 0; -errno after a message, which is printed once. */
static int jitdump_check(struct perfmap_run *run)
{
	const struct jitdump_out *jitdump = perfmap_session_jitdump(run->session);

	if (!jitdump || !jitdump->failed)
		return 0;
	if (!run->jitdump_failed)
		error_print(jitdump->failed, "it has the functions so far", "%s", jitdump->path);
	run->jitdump_failed = 1;
	return jitdump->failed;
}

static int stop_wanted(struct perfmap_run *run, int *interrupts)
{
	if (signals_end(run->signals, run->launch, interrupts))
		return 1;
	return run->options.duration_ns &&
	       clock_ns(CLOCK_MONOTONIC) - run->start_ns >= run->options.duration_ns;
}

static void wait_briefly(struct perfmap_run *run, int busy)
{
	struct pollfd polls[MAX_WATCHED + 1] = {{.fd = run->signals, .events = POLLIN}};
	int fds[MAX_WATCHED];
	size_t count = perfmap_session_poll_fds(run->session, fds, MAX_WATCHED);

	for (size_t i = 0; i < count; i++)
		polls[i + 1] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	poll(polls, count + 1, busy ? POLL_BUSY_MS : POLL_IDLE_MS);
}

static int follow_due(const struct perfmap_run *run)
{
	uint64_t pause = run->write_cost_ns * FOLLOW_SHARE;

	return run->options.follow && clock_ns(CLOCK_MONOTONIC) - run->written_ns >=
					      (pause < FOLLOW_NS ? FOLLOW_NS : pause);
}

static int session_follow(struct perfmap_run *run)
{
	int interrupts = 0;

	while (perfmap_session_running(run->session) && !stop_wanted(run, &interrupts)) {
		int count = perfmap_session_drain(run->session);

		if (count < 0)
			return error_print(count, NULL, "perfmap");
		jitdump_check(run);
		/* A failed write was reported, and may succeed later. */
		if (follow_due(run))
			maps_write(run, 0);
		if (count < DRAIN_MORE)
			wait_briefly(run, count > 0);
	}
	return 0;
}

static int pids_attach(struct perfmap_run *run)
{
	size_t count, attached = 0;
	pid_t *pids;

	if (targets_list(&run->options.targets, "tracer list shows what runs", &pids, &count))
		return -ESRCH;
	if (count > 1 && perfmap_options_single(&run->options)) {
		error_print(error_set(-EINVAL, "a map describes one process, and %zu match", count),
			    "name one with -p, or use --install", "perfmap");
		free(pids);
		return -EINVAL;
	}
	for (size_t i = 0; i < count; i++) {
		int err = perfmap_session_add(run->session, pids[i]);

		if (err == -ESRCH)
			pid_error_print(pids[i], err);
		else if (err)
			error_print(err, err == -EPERM || err == -EACCES ? cli_remedy(err) : NULL,
				    "PID %d", pids[i]);
		else
			attached++;
	}
	free(pids);
	return attached ? 0 : -ESRCH;
}

static int command_ready(pid_t pid, int running, void *context)
{
	struct perfmap_run *run = context;

	/*
	 * A running program without probes writes a map file only, unless it is a wrapper, which
	 * would have called exec by now.
	 */
	if (running)
		return clock_ns(CLOCK_MONOTONIC) - run->start_ns > WRAPPER_NS;
	run->start_ns = clock_ns(CLOCK_MONOTONIC);
	int err = perfmap_session_add(run->session, pid);
	return err ?: perfmap_session_at(run->session, 0)->probed > 0;
}

static int targets_start(struct perfmap_run *run)
{
	if (!run->options.command.count)
		return pids_attach(run);
	int err = launch_start(&run->launch, run->options.command.items, command_ready, run);
	if (err == -ECHILD && run->launch) {
		launch_wait(run->launch, 1, &run->status);
		error_print(error_set(-ENOENT,
				      "it ended (status %d) without running anything that can be "
				      "probed",
				      run->status),
			    "for a running program that only writes a map file, use -p PID --merge",
			    "%s", run->options.command.items[0]);
	} else if (err) {
		error_print(err, "nothing was traced", "command");
		if (run->launch) /* it could not be executed */
			launch_wait(run->launch, 1, &run->status);
	}
	return err;
}

static int run_finish(struct perfmap_run *run)
{
	int err = perfmap_session_refresh(run->session);

	if (err)
		error_print(err, NULL, "the last events");
	int written = maps_write(run, 1);
	for (size_t i = 0; run->options.status && i < perfmap_session_count(run->session); i++)
		perfmap_status_print(perfmap_session_at(run->session, i));
	perfmap_not_seen_print(run->session);
	jitdump_caveats(perfmap_session_jitdump(run->session));
	int blind = perfmap_blind_check(run->session);
	if (blind)
		error_print(blind, "use a larger --buffer", "perfmap");
	return err || written || jitdump_check(run) || blind || fflush(stdout) ? EXIT_FAILED
									       : EXIT_DONE;
}

static int run_session(struct perfmap_run *run)
{
	const struct perfmap_options *options = &run->options;
	const char *remedy;
	int err = perfmap_session_new(&run->session, &options->session, &remedy);

	if (err) {
		error_print(err, remedy, "perfmap");
		return EXIT_FAILED;
	}
	err = signals_catch(&run->signals, 1);
	if (err)
		return error_print(err, NULL, "perfmap"), EXIT_FAILED;
	if (targets_start(run))
		return run->status ? run->status : EXIT_FAILED;
	err = privileges_drop(options->install ? 2 : options->output != NULL, 0) ?: calls_limit(0);
	if (err)
		return error_print(err, NULL, "perfmap"), EXIT_FAILED;
	run->start_ns = clock_ns(CLOCK_MONOTONIC);
	jitdump_announce(run);
	/* Only the present state was asked for. */
	if (is_status_only(options) && !options->duration_ns)
		return run_finish(run);
	/*
	 * A path that cannot be written is reported at once; with --install the path may differ at
	 * the end.
	 */
	if (maps_write(run, 0) && !options->install)
		return EXIT_FAILED;
	err = session_follow(run);
	return run_finish(run) == EXIT_DONE && !err ? EXIT_DONE : EXIT_FAILED;
}

int cli_perfmap(int argc, char **argv)
{
	struct perfmap_run run = {.signals = -1, .version = UINT64_MAX};
	int status = perfmap_options_parse(argc, argv, &run.options);

	if (status) {
		perfmap_options_free(&run.options);
		return status < 0 ? EXIT_DONE : status;
	}
	status = run_session(&run);
	perfmap_session_free(run.session);
	/*
	 * The exit status is the command's, if it has ended; a command that still runs is left
	 * alone.
	 */
	if (run.launch && status == EXIT_DONE && launch_wait(run.launch, 0, &run.status) == 1)
		status = run.status;
	launch_free(run.launch);
	if (run.signals >= 0)
		close(run.signals);
	perfmap_options_free(&run.options);
	return status;
}
