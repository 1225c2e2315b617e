/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cmd/evidence/evidence_run.h"
#include "cmd/options/progress.h"
#include "cmd/options/signals.h"
#include "cmd/options/targets.h"
#include "cmd/options/trace_options.h"
#include "cmd/plan_print.h"
#include "cmd/tui/screen.h"
#include "cmd/tui/watch.h"
#include "probe/process/plan_native_process.h"
#include "probe/process/plan_target.h"
#include "proc/launch.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "report/pprof/pprof.h"
#include "session/ctl/live.h"
#include "session/ctl/session_socket.h"
#include "snapshot/group/precision.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/status_line.h"

/*
 * The live view of tracer trace: a process of its own, which is a client of the session (watch.h).
 * It is started before anything else is, so that it inherits nothing, and draws when the session is
 * there. The terminal belongs to it until it ends: what the session says on stderr goes to a file
 * in memory meanwhile, of which the view shows the last line, and is printed afterwards.
 */

/* Zero-initialise; view_end() releases. */
struct trace_view {
	pid_t pid;        /* 0: there is none, or it has ended */
	int go;           /* the view draws after a byte, and ends when this is closed */
	int messages;     /* stderr, meanwhile */
	int error_output; /* our stderr; -1: it was not replaced */
	int drawing;
	struct termios modes; /* of the terminal, before */
};

#define QUIT_STATUS 10
#define END_MS      2000 /* for the view to give the terminal back */

/* Names from the target are drawn here: the rights are those of a running session at most. */
static int view_draw(int go, int messages, const struct trace_options *options)
{
	struct watch_opts opts = {
		.end = go, .messages = messages, .ends_session = 1, .by_age = options->ages};
	int err = cli_ages_at(&options->choice.ages, clock_ns(CLOCK_REALTIME), &opts.ages);
	char byte;

	if (err)
		return err;
	if (read(go, &byte, 1) != 1)
		return 0;
	opts.session = session_socket_connect(SOCKET_DIRECTORY, getppid());
	if (opts.session < 0)
		return opts.session;
	return privileges_drop(1, 0) ?: calls_limit(0) ?: watch_run(&opts);
}

static void child_run(int go, int messages, const struct trace_options *options)
{
	/* Until there is something to see, Ctrl-C is for the session. */
	signal(SIGINT, SIG_IGN);
	int end = view_draw(go, messages, options);
	if (end < 0)
		dprintf(messages, "tracer: live view: %s\n", error_reason(end));
	_exit(end < 0 ? 1 : end == WATCH_END_QUIT ? QUIT_STATUS : 0);
}

/* Starts the process if the terminal allows a view. If it cannot be started, there is none. */
static void view_start(struct trace_view *view, const struct trace_options *options)
{
	int ends[2], messages;

	if (!watch_screen_is_possible() || tcgetattr(STDIN_FILENO, &view->modes) ||
	    pipe2(ends, O_CLOEXEC))
		return;
	messages = memfd_create("tracer-messages", MFD_CLOEXEC);
	view->pid = messages < 0 ? -1 : fork();
	if (!view->pid) {
		close(ends[1]);
		child_run(ends[0], messages, options);
	}
	close(ends[0]);
	if (view->pid > 0) {
		view->go = ends[1];
		view->messages = messages;
		view->error_output = -1;
		return;
	}
	view->pid = 0;
	close(ends[1]);
	close(messages);
}

/* Lets it draw. The session listens by now. */
static void view_go(struct trace_view *view)
{
	sigset_t set;

	if (!view->pid || view->drawing)
		return;
	fflush(stderr);
	if (isatty(STDERR_FILENO))
		view->error_output = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (view->error_output >= 0)
		dup2(view->messages, STDERR_FILENO);
	/* See view_step(). */
	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	view->drawing = write(view->go, "", 1) == 1;
}

/* What was said meanwhile, on our stderr again. */
static void messages_print(struct trace_view *view)
{
	char bytes[4096];
	off_t at = 0;
	ssize_t got;

	fflush(stderr);
	if (view->error_output >= 0) {
		dup2(view->error_output, STDERR_FILENO);
		close(view->error_output);
	}
	while ((got = pread(view->messages, bytes, sizeof(bytes), at)) > 0) {
		fwrite(bytes, 1, (size_t)got, stderr);
		at += got;
	}
	fflush(stderr);
	close(view->messages);
}

/* The process has ended with that wait status. */
static void view_ended(struct trace_view *view, int status)
{
	sigset_t set;

	view->pid = 0;
	if (view->go >= 0)
		close(view->go);
	/* A view that was killed has not given the terminal back. */
	if (view->drawing && WIFSIGNALED(status)) {
		tcsetattr(STDIN_FILENO, TCSADRAIN, &view->modes);
		fputs("\033[?1049l\033[?25h", stdout);
		fflush(stdout);
	}
	messages_print(view);
	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	if (view->drawing)
		sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/*
 * Ctrl-Z reaches the session and the view. The view gives the terminal back before it stops; only
 * then may the shell see the session stop, and take the terminal. So SIGTSTP is blocked, and let
 * through here.
 */
static void stop_with(struct trace_view *view)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, NULL); /* stops here */
	sigprocmask(SIG_BLOCK, &set, NULL);
	kill(view->pid, SIGCONT);
}

/*
 * Call it often: stops with the view (Ctrl-Z). 1: the user quits the view, and so the session. If
 * it fails, that is said, and the session goes on.
 */
static int view_step(struct trace_view *view)
{
	sigset_t pending;
	int status;

	if (!view->pid)
		return 0;
	/* A signal to the session alone. */
	if (view->drawing && !sigpending(&pending) && sigismember(&pending, SIGTSTP))
		kill(view->pid, SIGTSTP);
	if (waitpid(view->pid, &status, WNOHANG | WUNTRACED) != view->pid)
		return 0;
	if (WIFSTOPPED(status)) {
		stop_with(view);
		return 0;
	}
	view_ended(view, status);
	if (WIFEXITED(status) && WEXITSTATUS(status) == QUIT_STATUS)
		return 1;
	log_info("the live view has ended; the trace goes on, Ctrl-C ends it");
	return 0;
}

/* Ends it, and prints what was said meanwhile. */
static void view_end(struct trace_view *view)
{
	int status = 0;

	if (!view->pid)
		return;
	close(view->go);
	view->go = -1;
	kill(view->pid, SIGCONT);
	for (int ms = 0; waitpid(view->pid, &status, WNOHANG) != view->pid; ms += 10) {
		if (ms == END_MS)
			kill(view->pid, SIGKILL);
		usleep(10000);
	}
	view_ended(view, status);
}

/* tracer [trace]: attach, wait for the end, report. */

struct run {
	struct trace_options options;
	struct session *session;
	struct launch *launch;
	struct outfile *output, *capture, *record;
	struct live live;
	struct targets targets;
	int signals;   /* signals_catch() */
	int status;    /* exit status of the command */
	int unseen;    /* it has ended, and its programs had before they were examined */
	int hurried;   /* a signal has requested the end */
	bool is_watch; /* cli_watch() */
	struct late command;
	unsigned int command_looks;
	int command_refused; /* what it loaded cannot be traced; this has been reported */
	uint64_t start_ns, next_print_ns, next_judge_ns;
	struct speed speed;
	struct trace_view view;
	int limited; /* the time of -d has started */
};

#define POLL_BUSY_MS    2 /* between two polls of a ring buffer that had records */
#define POLL_IDLE_MS    20
#define POLL_REST_MS    100 /* while nothing is traced, and nothing is to be at once */
#define END_REPORTED_NS 500000000ull
#define JUDGE_NS        10000000000ull /* between two looks at how good the figures are */
#define KEPT_REMEDY     "the existing file is unchanged"
#define LINKS_REMEDY    "the report ends there; tracer doctor shows whether a breakpoint was left"

/* Prints the probe plan of a process on stdout. 0, -errno. */
static int run_plan_show(pid_t pid, const struct plan_target_opts *opts)
{
	struct plan_caches caches = {0};
	struct plan_target target;
	int err = plan_caches_new(&caches, opts) ?: plan_target(pid, opts, &caches, &target);

	if (!err) {
		err = plan_native_unfound(caches.native);
		if (!err)
			plan_target_print(&target);
		plan_target_free(&target);
	}
	plan_caches_free(&caches);
	return err;
}

/* Writes the last snapshot, or the only one. */
static int output_save(struct run *run, const struct snapshot *snapshot)
{
	struct outfile *file = run->output;
	int err = pprof_write(snapshot, file);

	run->output = NULL;
	if (!err)
		return run->options.keep ? outfile_rotate(file, run->options.keep)
					 : outfile_commit(file);
	outfile_discard(file);
	return err;
}

/* A file is read next; without one, a process that still runs is asked what grows. */
static void next_set(struct run *run, const struct snapshot *snapshot)
{
	struct report_choice *choice = &run->options.choice;
	const struct snapshot_meta *first = snapshot_process(snapshot, 0);

	if (run->output && strcmp(run->options.output, "-") != 0) {
		report_choice_next(choice, run->options.output);
	} else if (first->python_version && !first->has_exited &&
		   !strcmp(first->moment, "running")) {
		snprintf(choice->next, sizeof(choice->next), "tracer leaks -p %u", first->pid);
		choice->opts.next = choice->next;
	}
}

/* --require-complete: of what was not even begun to be traced, too. The status. */
static int complete_check(const struct run *run, const struct snapshot *snapshot, int status)
{
	const struct report_choice *choice = &run->options.choice;

	if (status == EXIT_DONE && choice->require_complete &&
	    (trace_dropped(session_trace(run->session)).processes ||
	     session_unexamined(run->session)))
		return cli_incomplete(NULL, "processes are not in the report");
	return cli_require_complete(choice, snapshot, NULL, status);
}

/*
 * Prints the report of all processes, in their present state or (at the end) in the state at the
 * shutdown of their interpreters.
 */
static int reports_print(struct run *run, int at_end)
{
	struct trace *trace = session_trace(run->session);
	struct snapshot *snapshot;

	status_line_clear();
	if (!trace_process_count(trace)) /* no process has loaded its Python yet */
		return EXIT_DONE;
	int err = trace_snapshot_all(trace, at_end, &snapshot);
	if (err) {
		error_print(err, NULL, "report");
		return EXIT_FAILED;
	}
	if (at_end)
		next_set(run, snapshot);
	int status = cli_ages_report(snapshot, &run->options.choice);
	if (at_end)
		status = complete_check(run, snapshot, status);
	if (at_end && run->output) {
		err = output_save(run, snapshot);
		if (err) {
			error_print(err, KEPT_REMEDY, "%s", run->options.output);
			status = EXIT_FAILED;
		}
	}
	if (at_end && record_last(&run->live.record, snapshot))
		status = EXIT_FAILED;
	snapshot_free(snapshot);
	return status;
}

static int stop_wanted(struct run *run, int *interrupts)
{
	run->hurried = signals_end(run->signals, run->launch, interrupts);
	return run->hurried || view_step(&run->view) || live_stop_wanted(&run->live) ||
	       !session_left_ns(run->session);
}

/* The time of -d starts with the first traced process; waiting for one does not count. */
static void duration_begin(struct run *run)
{
	if (!run->options.duration_ns || run->limited ||
	    (targets_waiting(&run->targets) && !session_running(run->session)))
		return;
	run->limited = 1;
	run->next_judge_ns = clock_ns(CLOCK_MONOTONIC) + JUDGE_NS;
	session_limit(run->session, run->options.duration_ns);
}

/* Waits for events, but not for long. */
static void run_wait(struct run *run, int busy)
{
	struct pollfd polls[3 + LIVE_POLLS] = {
		{.fd = run->signals, .events = POLLIN},
		{.fd = session_ends_fd(run->session), .events = POLLIN},
		{.fd = session_unwind_fd(run->session), .events = POLLIN},
	};

	uint64_t left_ns = session_left_ns(run->session), due_ns = session_due_ns(run->session);
	uint64_t left_ms = (left_ns < due_ns ? left_ns : due_ns) / 1000000;
	int wait_ms = busy ? POLL_BUSY_MS : POLL_IDLE_MS;

	if (run->options.session.after_cpu_ns && !session_running(run->session))
		wait_ms = POLL_REST_MS;

	if (left_ms < (uint64_t)wait_ms)
		wait_ms = (int)left_ms + 1;
	poll(polls, 3 + live_poll_fds(&run->live, polls + 3), wait_ms);
}

/*
 * Drops the rights that are not needed any more. Following processes, and changing a mode, need the
 * right to attach.
 */
static int run_confine(const struct run *run)
{
	int attaches = run->options.session.watch != ABI_WATCH_NONE ||
		       run->options.session.overhead > 0 || run->options.session.window_on_ns;

	int rights = attaches ? session_attach_rights(run->session) : 0;
	unsigned int calls =
		(attaches ? CALLS_ATTACH : 0) | (run->options.session.freeze ? CALLS_FREEZE : 0);

	session_hurry(run->session);
	return session_confine(run->session, rights)
		?: privileges_drop(run->output || run->capture || run->options.record, rights)
		?: calls_limit(calls);
}

/* Is anything traced, or may it be later? A command without Python may start a Python. */
static int run_goes_on(struct run *run)
{
	if (session_running(run->session) || targets_waiting(&run->targets) ||
	    session_undecided(run->session))
		return 1;
	if (run->options.session.watch == ABI_WATCH_ALL &&
	    target_set_may_grow(&run->options.targets))
		return 1;
	return run->launch && run->options.session.watch &&
	       !launch_wait(run->launch, 0, &run->status);
}

/* -d auto: are the figures good enough? A trace that sees all blocks has seen enough by then. */
static bool is_precise(struct run *run)
{
	const struct statistics_opts opts = {.by = GROUP_LINENO};
	struct trace *trace = session_trace(run->session);
	struct statistics statistics;
	struct snapshot *snapshot;
	int precise = 0;

	if (!run->options.duration_auto || !run->limited ||
	    clock_ns(CLOCK_MONOTONIC) < run->next_judge_ns || !trace_process_count(trace))
		return 0;
	session_census(run->session);
	if (!trace_snapshot_all(trace, 0, &snapshot)) {
		if (!statistics_compute(snapshot, &opts, &statistics)) {
			precise = precision_of(&statistics) <= PRECISION_AIM;
			statistics_free(&statistics);
		}
		snapshot_free(snapshot);
	}
	run->next_judge_ns = clock_ns(CLOCK_MONOTONIC) + JUDGE_NS;
	return precise;
}

/* Runs until the targets end, the time is over or the user asks for the end. 0, -errno. */
static int session_follow(struct run *run)
{
	int interrupts = 0;

	run->next_print_ns = run->start_ns + run->options.interval_ns;
	if (run->live.control)
		view_go(&run->view);
	while (run_goes_on(run) && !stop_wanted(run, &interrupts) && !is_precise(run)) {
		int count = session_drain(run->session);

		duration_begin(run);
		/* The terminal belongs to the command. */
		if (!run->launch && !run->view.pid)
			speed_step(&run->speed, run->session, run->options.duration_ns);
		if (count >= 0 && targets_waiting(&run->targets)) {
			if (targets_look(&run->targets, run->session))
				/* reported already; what is traced is reported at the end */
				return 0;
			int err = targets_waiting(&run->targets) ? 0 : run_confine(run);

			if (err)
				return err;
		}
		if (count < 0)
			return count;
		if (run->options.interval_ns && clock_ns(CLOCK_MONOTONIC) >= run->next_print_ns) {
			run->next_print_ns += run->options.interval_ns;
			session_census(run->session);
			count = session_count_loss(run->session);
			if (count < 0)
				return count;
			if (reports_print(run, 0) != EXIT_DONE)
				return -EIO;
		}
		int more = live_step(&run->live);
		/* A full batch means that more records are ready. */
		if (count < 1 << 16 && !more)
			run_wait(run, count > 0);
	}
	return 0;
}

/* Opens the control socket, before the message that the session has attached. */
static void run_open(struct run *run)
{
	const struct live_opts opts = {
		.every_ns = run->options.snapshot_ns,
		.keep = run->options.keep,
		.file = run->output,
		.name = run->options.output,
	};

	live_begin(&run->live, run->session, &opts);
}

/*
 * Do the targets have the functions of --alloc? If further targets may come, missing ones are no
 * error yet. 0, or an error that was reported.
 */
static int run_allocs_check(struct run *run)
{
	const struct target_set *set = &run->options.targets;
	int more = set->all || set->wait || set->container_count || set->cgroup_count ||
		   set->name_count || target_set_has_pods(set) || run->options.command.count;
	int err = session_allocs_unfound(run->session);

	if (err && !more)
		return error_print(err, "--dry-run lists the files that are searched", "--alloc");
	if (err)
		log_info("--alloc: %s so far", error_reason(err));
	return 0;
}

/* --- trace command ---------------------------------------------------------------------------- */

/* tracer -- COMMAND: starts the command, and traces it as soon as it has loaded Python. */

/* checks of a command without Python before a message says that we wait */
#define COMMAND_PATIENCE 100

/*
 * Has the running command loaded Python by now? An error is reported, and the command continues
 * untraced.
 */
static int command_look(struct run *run, pid_t pid)
{
	int err;

	/* Its children may have loaded Python first. */
	if (run->options.session.watch && !run->options.dry_run) {
		/* The main loop gets an error of the session, too. */
		if (session_drain(run->session) < 0 || session_running(run->session))
			return signals_catch(&run->signals, 1) ?: 1;
	}
	if (run->command_refused)
		return 0;
	run->command.pid = pid;
	int found = late_look(&run->command, NULL);
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

/* Says on stderr how many programs ended before they were inspected, if any. */
static void run_unexamined_print(const struct run *run)
{
	size_t count = session_unexamined(run->session);

	if (count)
		log_info("%zu of the programs that were started ended before being examined: what "
			 "they allocated is in no table",
			 count);
	count = session_resting(run->session) + session_rested(run->session);
	if (count)
		log_info("%zu process%s that ran before used too little CPU time to be traced "
			 "(--after-cpu)",
			 count, count == 1 ? "" : "es");
	count = session_unnamed(run->session);
	if (count)
		log_info("%zu processes ended before their names were read: some may have been "
			 "among those asked for",
			 count);
}

/*
 * Starts the command, and returns once it is traced. 0, or an error that was reported; run->status
 * is set if it has ended.
 */
static int run_command(struct run *run)
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
		if (run->launch) /* it could not be executed */
			launch_wait(run->launch, 1, &run->status);
	}
	return err;
}

/* To hundreds of processes the attach takes a minute: who asks meanwhile gets an answer. */
static int attached_step(void *context)
{
	struct run *run = context;

	if (run->live.control)
		control_serve(run->live.control);
	return live_stop_wanted(&run->live);
}

static int targets_start(struct run *run)
{
	int err = signals_catch(&run->signals, 1);

	if (err)
		return error_print(err, NULL, "trace");
	run_open(run);
	run->targets.between = attached_step;
	run->targets.between_context = run;
	return targets_attach(&run->targets, run->session) ?: run_allocs_check(run);
}

static int files_open(struct run *run)
{
	struct trace_options *options = &run->options;
	int err =
		options->output ? outfile_open(&run->output, options->output, options->replace) : 0;

	if (err)
		return error_print(err, NULL, "%s", options->output);
	err = options->capture ? outfile_open(&run->capture, options->capture, options->replace)
			       : 0;
	if (err)
		return error_print(err, NULL, "%s", options->capture);
	options->session.capture = run->capture;
	err = options->record ? outfile_open(&run->record, options->record, options->replace) : 0;
	return err ? error_print(err, NULL, "%s", options->record) : 0;
}

/* An empty report of active programs is printed, but is an error. */
static int seen_check(const struct run *run, int status)
{
	const char *remedy;
	int err = session_check_seen(run->session, &remedy);

	if (!err)
		return status;
	error_print(err, remedy, "trace");
	return EXIT_FAILED;
}

static const char *run_remedy(int err)
{
	return err == -EOWNERDEAD ? LINKS_REMEDY : NULL;
}

/* After -d the user does not expect to wait: a long wait is explained. */
static void end_print(const struct run *run)
{
	struct session_end end;

	session_end_read(run->session, &end);
	uint64_t whole_ns = clock_ns(CLOCK_MONOTONIC) - end.stopped_ns;
	if (whole_ns > END_REPORTED_NS)
		log_info("the report came %.1f s after the last event: %.1f s to remove the "
			 "probes, %.1f s for names of native code",
			 (double)whole_ns / 1e9, (double)end.probes_ns / 1e9,
			 (double)end.names_ns / 1e9);
}

static int run_finish(struct run *run)
{
	size_t traced;

	view_end(&run->view);
	status_line_clear();
	/* Its last records may be of processes that ended before they could be traced. */
	int err = session_stop(run->session, run->hurried);
	traced = trace_process_count(session_trace(run->session));
	if (run->is_watch && !traced && !err)
		return EXIT_DONE;
	targets_give_up(&run->targets, traced, session_unexamined(run->session));
	if (!run->options.command.count && !run->targets.attached && !traced) {
		run_unexamined_print(run);
		return EXIT_FAILED;
	}
	if (err)
		error_print(err, run_remedy(err), "the last events");
	live_finish(&run->live);
	cli_dropped_print(session_trace(run->session));
	run_unexamined_print(run);
	int status = seen_check(run, reports_print(run, 1));
	if (run->limited && status == EXIT_DONE)
		end_print(run);
	if (run->capture && !session_capture_error(run->session)) {
		int failed = outfile_commit(run->capture);

		run->capture = NULL;
		if (failed) {
			error_print(failed, KEPT_REMEDY, "%s", run->options.capture);
			return EXIT_FAILED;
		}
	}
	return err ? EXIT_FAILED : status;
}

static int is_wanted(void *context, pid_t pid, const char *name)
{
	struct process_info info;

	if (!process_info_read(pid, &info) && !info.zombie)
		return target_set_match(context, &info) > 0;
	return name ? target_set_match_name(context, name) : -ESRCH;
}

static int run_session(struct run *run)
{
	const char *remedy;

	if (run->options.session.watch == ABI_WATCH_ALL) {
		run->options.session.wanted = is_wanted;
		run->options.session.wanted_context = &run->options.targets;
	}
	/* With containers they are pids within those. */
	if (target_set_is_pids(&run->options.targets) && !run->options.targets.container_count)
		run->options.session.first = run->options.targets.pids[0];
	int err = session_new(&run->session, &run->options.session, &remedy);
	if (err) {
		error_print(err, remedy, "trace");
		return EXIT_FAILED;
	}
	if (run->options.ages)
		trace_ages(session_trace(run->session));
	err = run->options.command.count ? run_command(run) : targets_start(run);
	if (err)
		return run->status || run->unseen ? run->status : EXIT_FAILED;
	err = record_begin(&run->live.record, run->session, run->record, run->options.record,
			   run->options.record_ns);
	run->record = NULL;
	if (err)
		return EXIT_FAILED;
	duration_begin(run);
	if (!targets_waiting(&run->targets))
		err = run_confine(run);
	if (err) {
		error_print(err, NULL, "trace");
		return EXIT_FAILED;
	}
	run->start_ns = clock_ns(CLOCK_MONOTONIC);
	err = session_follow(run);
	if (err) {
		int capture = session_capture_error(run->session);

		error_print(err, capture ? KEPT_REMEDY : run_remedy(err), "%s",
			    capture ? run->options.capture : "trace");
	}
	return err ? (run_finish(run), EXIT_FAILED) : run_finish(run);
}

static int dry_run(struct run *run)
{
	if (run->options.command.count) {
		int err = run_command(run);

		/* The command was started only for its maps. */
		if (!err)
			launch_signal(run->launch, SIGKILL);
		return err ? run->status ?: EXIT_FAILED : EXIT_DONE;
	}
	struct target_set *set = &run->options.targets;
	size_t count, shown = 0;
	pid_t *pids;

	if (targets_list(set, "tracer list shows what runs", &pids, &count))
		return EXIT_FAILED;
	for (size_t i = 0; i < count; i++) {
		int err = run_plan_show(pids[i], &run->options.session.plan);

		shown += !err;
		if (err)
			target_error_print(set, pids[i], err);
	}
	free(pids);
	if (!shown)
		targets_none_print(set, count);
	return shown == count || (shown && !target_set_is_pids(set)) ? EXIT_DONE : EXIT_FAILED;
}

static int cli_run(int argc, char **argv, bool is_watch)
{
	struct run run = {.signals = -1, .is_watch = is_watch};
	int status = trace_options_parse(argc, argv, &run.options);

	if (status) {
		trace_options_free(&run.options);
		return status < 0 ? EXIT_DONE : status;
	}
	if (run.options.evidence.path) {
		status = evidence_run(&run.options.evidence, &run.options.targets,
				      run.options.duration_ns);
		trace_options_free(&run.options);
		return status;
	}
	run.targets.set = &run.options.targets;
	run.targets.follows = run.options.session.watch == ABI_WATCH_ALL;
	if (run.options.dry_run) {
		status = dry_run(&run);
	} else {
		if (run.options.live)
			view_start(&run.view, &run.options);
		status = files_open(&run) ? EXIT_FAILED : run_session(&run);
		view_end(&run.view);
	}
	outfile_discard(run.output);
	outfile_discard(run.capture);
	outfile_discard(run.record);
	session_free(run.session);
	live_end(&run.live); /* a client that requested the end gets its answer now */
	targets_free(&run.targets);
	/*
	 * The exit status is the command's, if it has ended; a command that still runs is left
	 * alone.
	 */
	if (run.launch && status == EXIT_DONE && !run.options.dry_run &&
	    launch_wait(run.launch, 0, &run.status) == 1)
		status = run.status;
	launch_free(run.launch);
	if (run.signals >= 0)
		close(run.signals);
	trace_options_free(&run.options);
	return status;
}

int cli_trace(int argc, char **argv)
{
	return cli_run(argc, argv, false);
}

int cli_watch(int argc, char **argv)
{
	return cli_run(argc, argv, true);
}
