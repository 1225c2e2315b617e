/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live view of tracer trace: a process of its own, which is a client of the session (watch.h).
 * It is started before anything else is, so that it inherits nothing, and draws when the session is
 * there. The terminal belongs to it until it ends: what the session says on stderr goes to a file
 * in memory meanwhile, of which the view shows the last line, and is printed afterwards.
 */
#pragma once

#include <sys/types.h>
#include <termios.h>

/* Zero-initialise; view_end() releases. */
struct trace_view {
	pid_t pid;        /* 0: there is none, or it has ended */
	int go;           /* the view draws after a byte, and ends when this is closed */
	int messages;     /* stderr, meanwhile */
	int error_output; /* our stderr; -1: it was not replaced */
	int drawing;
	struct termios modes; /* of the terminal, before */
};

/* Starts the process if the terminal allows a view. If it cannot be started, there is none. */
void view_start(struct trace_view *view);
/* Lets it draw. The session listens by now. */
void view_go(struct trace_view *view);
/*
 * Call it often: stops with the view (Ctrl-Z). 1: the user quits the view, and so the session. If
 * it fails, that is said, and the session goes on.
 */
int view_step(struct trace_view *view);
/* Ends it, and prints what was said meanwhile. */
void view_end(struct trace_view *view);
