/* SPDX-License-Identifier: Apache-2.0 */
/* tracer -- COMMAND: it is started, and traced from where there is something to trace in it. */
#include <errno.h>

#include "base/error.h"
#include "cli/trace_run.h"

#define COMMAND_PATIENCE 100 /* looks at a command without Python before we tell that we wait */

/*
 * The command runs and has no Python: has it by now? An error is told, and the command goes on
 * without us.
 */
static int command_look(struct run *run, pid_t pid)
{
	int found, err;

	/* Its children may have got there before it. */
	if (run->options.session.watch && !run->options.dry_run) {
		/* Whoever follows the session learns of an error, too. */
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
	 * child: not yet.
	 */
	return run->options.session.watch && !run->options.dry_run
		       ? session_watch(run->session, pid)
		       : 0;
}

/*
 * The command has ended. Has it left children that run Python, or may come to it, or that have run
 * it?
 */
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
		error_print(error_set(-ENOENT,
				      "it ended (status %d) and had run no Python that is known",
				      run->status),
			    "--layer native traces malloc in any program", "%s", command[0]);
	} else {
		error_print(err, err == -ENOTSUP ? NULL : "nothing was traced", "command");
	}
	return err;
}
