/* SPDX-License-Identifier: Apache-2.0 */
/* tracer -- COMMAND: starts the command, and traces it as soon as it has loaded Python. */
#include <errno.h>

#include "cmd/trace_run.h"
#include "util/error.h"

/* checks of a command without Python before a message says that we wait */
#define COMMAND_PATIENCE 100

/*
 * Has the running command loaded Python by now? An error is reported, and the command continues
 * untraced.
 */
static int command_look(struct run *run, pid_t pid)
{
	int found, err;

	/* Its children may have loaded Python first. */
	if (run->options.session.watch && !run->options.dry_run) {
		/* The main loop gets an error of the session, too. */
		if (session_drain(run->session) < 0 || session_running(run->session))
			return signals_catch(&run->signals, 1) ?: 1;
	}
	if (run->command_refused)
		return 0;
	run->command.pid = pid;
	found = late_look(&run->command, NULL);
	if (found <= 0) {
		if (!found && ++run->command_looks == COMMAND_PATIENCE)
			log_info("the command runs no Python yet; waiting for it to load one "
				 "(--layer native traces malloc in any program)");
		return 0;
	}
	if (run->options.dry_run)
		err = run_plan_show(pid, &run->options.session.plan);
	else
		err = signals_catch(&run->signals, 1) ?: late_attach(run->session, pid);
	if (!err)
		return 1;
	signals_catch(&run->signals, 0);
	error_print(err, cli_remedy(err), "command");
	run->command_refused = 1;
	return 0;
}

static int command_ready(pid_t pid, int running, void *context)
{
	struct run *run = context;
	int err;

	if (running)
		return command_look(run, pid);
	run->command = (struct late){0};
	if (run->options.dry_run)
		err = run_plan_show(pid, &run->options.session.plan);
	else
		err = signals_catch(&run->signals, 1);
	if (!err && !run->options.dry_run) {
		run_open(run);
		err = session_add(run->session, pid, 1) ?: run_allocs_check(run);
	}
	if (!err)
		return 1;
	signals_catch(&run->signals, 0);
	if (err != -ENOENT)
		return err;
	/*
	 * A wrapper that will exec the interpreter, or a program that will load it or start it as a
	 * child.
	 */
	return run->options.session.watch && !run->options.dry_run
		       ? session_watch(run->session, pid)
		       : 0;
}

/* The command has ended. Has it left children that run Python, may load it, or have run it? */
static int children_remain(struct run *run)
{
	do {
		if (session_drain(run->session) < 0)
			return 0;
		if (trace_process_count(session_trace(run->session)))
			return 1;
		run_wait(run, 1);
	} while (session_undecided(run->session));
	return 0;
}

void run_unexamined_print(const struct run *run)
{
	size_t count = session_unexamined(run->session);

	if (count)
		log_info("%zu of the programs that were started ended before being examined: what "
			 "they allocated is in no table",
			 count);
	count = session_unnamed(run->session);
	if (count)
		log_info("%zu processes ended before their names were read: some may have been "
			 "among those asked for",
			 count);
}

int run_command(struct run *run)
{
	char **command = run->options.command.items;
	int err = launch_start(&run->launch, command, command_ready, run);

	if (!err)
		return 0;
	if (err == -ECHILD && run->launch) {
		launch_wait(run->launch, 1, &run->status);
		if (run->session && children_remain(run))
			return signals_catch(&run->signals, 1);
		if (run->session)
			run_unexamined_print(run);
		/* Some may have run Python: that nothing was traced is no error of theirs. */
		if (run->session && session_unexamined(run->session)) {
			log_info("nothing was traced: none of the programs that %s started lived "
				 "until it was examined",
				 command[0]);
			run->unseen = 1;
			return err;
		}
		error_print(error_set(-ENOENT,
				      "it ended (status %d) without running a known Python",
				      run->status),
			    "--layer native traces malloc in any program", "%s", command[0]);
	} else {
		error_print(err, err == -ENOTSUP ? NULL : "nothing was traced", "command");
	}
	return err;
}
