/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/trace_view.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/tui/screen.h"
#include "cmd/tui/watch.h"
#include "proc/sandbox/calls.h"
#include "proc/sandbox/privileges.h"
#include "session/ctl/session_socket.h"
#include "util/error.h"

#define QUIT_STATUS 10
#define END_MS      2000 /* for the view to give the terminal back */

/* Names from the target are drawn here: the rights are those of a running session at most. */
static int view_draw(int go, int messages)
{
	struct watch_opts opts = {.end = go, .messages = messages, .ends_session = 1};
	char byte;

	if (read(go, &byte, 1) != 1)
		return 0;
	opts.session = session_socket_connect(SOCKET_DIRECTORY, getppid());
	if (opts.session < 0)
		return opts.session;
	return privileges_drop(1, 0) ?: calls_limit(0) ?: watch_run(&opts);
}

static void child_run(int go, int messages)
{
	/* Until there is something to see, Ctrl-C is for the session. */
	signal(SIGINT, SIG_IGN);
	int end = view_draw(go, messages);
	if (end < 0)
		dprintf(messages, "tracer: live view: %s\n", error_reason(end));
	_exit(end < 0 ? 1 : end == WATCH_END_QUIT ? QUIT_STATUS : 0);
}

void view_start(struct trace_view *view)
{
	int ends[2], messages;

	if (!watch_screen_is_possible() || tcgetattr(STDIN_FILENO, &view->modes) ||
	    pipe2(ends, O_CLOEXEC))
		return;
	messages = memfd_create("tracer-messages", MFD_CLOEXEC);
	view->pid = messages < 0 ? -1 : fork();
	if (!view->pid) {
		close(ends[1]);
		child_run(ends[0], messages);
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

void view_go(struct trace_view *view)
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

int view_step(struct trace_view *view)
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

void view_end(struct trace_view *view)
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
