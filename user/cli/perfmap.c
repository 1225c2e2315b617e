/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer perfmap: attach, write the present map, follow the process until it ends, write the map
 * again.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/perfmap_status.h"
#include "kernel/calls.h"
#include "kernel/privileges.h"
#include "options/perfmap_options.h"
#include "options/signals.h"
#include "options/targets.h"
#include "process/launch.h"

#define POLL_BUSY_MS 2 /* between two polls of a ring buffer that had records */
#define POLL_IDLE_MS 20
#define MAX_WATCHED  64
/* between two writes of the same map; writing takes at most one FOLLOW_SHARE-th of the time */
#define FOLLOW_NS    200000000ull
#define FOLLOW_SHARE 20
#define WRAPPER_NS   300000000ull
#define DRAIN_MORE   (1 << 16) /* a full batch: more records are ready */

struct run {
	struct perfmap_options options;
	struct perfmap_session *session;
	struct launch *launch;
	int signals;
	int status;        /* exit status of the command */
	uint64_t start_ns; /* start of the session; before that, of the command's last program */
	uint64_t written_ns, write_cost_ns;
	uint64_t version; /* version of the table last written to -o; UINT64_MAX: never */
	int output_error; /* of the last write to -o */
};

static int bytes_write(void *context, const char *data, size_t bytes)
{
	return outfile_write(context, data, bytes);
}

/* Writes the map of the single process. */
static int output_write(struct run *run, const char *path)
{
	const struct perfmap_table *table = perfmap_session_at(run->session, 0)->process->table;
	struct outfile *file;
	int err;

	/* An empty map is written to a file that was asked for. */
	if (run->version == perfmap_table_version(table) ||
	    (!strcmp(path, "-") && !perfmap_table_count(table)))
		return 0;
	err = outfile_open(&file, path, run->options.replace);
	if (err)
		return err;
	err = perfmap_text_write(table, bytes_write, file);
	if (err)
		outfile_discard(file);
	else
		err = outfile_commit(file);
	if (err)
		return err;
	run->version = perfmap_table_version(table);
	run->options.replace = OUTFILE_ANY; /* the file is this run's */
	return 0;
}

/* Installs every process's map. An error is printed once, until it changes. */
static int maps_install(struct run *run)
{
	int failed = 0;

	for (size_t i = 0; i < perfmap_session_count(run->session); i++) {
		struct perfmap_member *member = perfmap_session_at(run->session, i);
		int status = perfmap_session_install(run->session, member);

		if (status < 0 && status != member->install_error)
			error_print(status, "the existing file is unchanged", "PID %d",
				    member->pid);
		member->install_error = status < 0 ? status : 0;
		/* A target's own /tmp that is not accessible was reported at the attach. */
		failed |= status < 0 || (member->named && member->places.target < 0);
	}
	return failed ? -EIO : 0;
}

/* 0; -errno after a message, which is printed once, until it changes. */
static int maps_write(struct run *run, int at_end)
{
	const struct perfmap_options *options = &run->options;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	int err = 0;

	if (options->install)
		err = maps_install(run);
	else if (options->output ? strcmp(options->output, "-") || at_end
				 : at_end && !options->status) {
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

static int stop_wanted(struct run *run, int *interrupts)
{
	if (signals_end(run->signals, run->launch, interrupts))
		return 1;
	return run->options.duration_ns &&
	       clock_ns(CLOCK_MONOTONIC) - run->start_ns >= run->options.duration_ns;
}

static void wait_briefly(struct run *run, int busy)
{
	struct pollfd polls[MAX_WATCHED + 1] = {{.fd = run->signals, .events = POLLIN}};
	int fds[MAX_WATCHED];
	size_t count = perfmap_session_poll_fds(run->session, fds, MAX_WATCHED);

	for (size_t i = 0; i < count; i++)
		polls[i + 1] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	poll(polls, count + 1, busy ? POLL_BUSY_MS : POLL_IDLE_MS);
}

static int follow_due(const struct run *run)
{
	uint64_t pause = run->write_cost_ns * FOLLOW_SHARE;

	return run->options.follow && clock_ns(CLOCK_MONOTONIC) - run->written_ns >=
					      (pause < FOLLOW_NS ? FOLLOW_NS : pause);
}

static int session_follow(struct run *run)
{
	int interrupts = 0;

	while (perfmap_session_running(run->session) && !stop_wanted(run, &interrupts)) {
		int count = perfmap_session_drain(run->session);

		if (count < 0)
			return error_print(count, NULL, "perfmap");
		/* A failed write was reported, and may succeed later. */
		if (follow_due(run))
			maps_write(run, 0);
		if (count < DRAIN_MORE)
			wait_briefly(run, count > 0);
	}
	return 0;
}

static int pids_attach(struct run *run)
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
	struct run *run = context;
	int err;

	/*
	 * A running program without probes writes a map file only, unless it is a wrapper, which
	 * would have called exec by now.
	 */
	if (running)
		return clock_ns(CLOCK_MONOTONIC) - run->start_ns > WRAPPER_NS;
	run->start_ns = clock_ns(CLOCK_MONOTONIC);
	err = perfmap_session_add(run->session, pid);
	return err ? err : perfmap_session_at(run->session, 0)->probed > 0;
}

static int targets_start(struct run *run)
{
	int err;

	if (!run->options.command.count)
		return pids_attach(run);
	err = launch_start(&run->launch, run->options.command.items, command_ready, run);
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
	}
	return err;
}

static int run_finish(struct run *run)
{
	int err = perfmap_session_refresh(run->session), written, blind;

	if (err)
		error_print(err, NULL, "the last events");
	written = maps_write(run, 1);
	for (size_t i = 0; run->options.status && i < perfmap_session_count(run->session); i++)
		perfmap_status_print(perfmap_session_at(run->session, i));
	perfmap_not_seen_print(run->session);
	blind = perfmap_blind_check(run->session);
	if (blind)
		error_print(blind, "use a larger --buffer", "perfmap");
	return err || written || blind || fflush(stdout) ? EXIT_FAILED : EXIT_DONE;
}

static int run_session(struct run *run)
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
	/* Only the present state was asked for. */
	if (options->status && !options->install && !options->output && !options->duration_ns &&
	    !options->command.count)
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
	struct run run = {.signals = -1, .version = UINT64_MAX};
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
