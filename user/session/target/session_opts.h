/* SPDX-License-Identifier: Apache-2.0 */
/* What a session is to do, and how it ended. */
#ifndef TRACER_SESSION_TARGET_SESSION_OPTS_H
#define TRACER_SESSION_TARGET_SESSION_OPTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/events.h"
#include "probe/process/plan_target.h"
#include "util/outfile.h"

/* This many processes are logged one by one; further ones only with -v. */
#define SESSION_LOGS 8u

enum session_backend { SESSION_BACKEND_BEST, SESSION_BACKEND_MULTI, SESSION_BACKEND_PERF };

struct session_opts {
	uint32_t nframe;   /* 1-128; 0: session_nframe() chooses */
	size_t ring_bytes; /* 0: the default */
	enum session_backend backend;
	int freeze;      /* stop the target while its heap is walked for a report */
	uint64_t budget; /* memory limit in bytes, see trace_budget() */
	/* trace a sample of the blocks (abi/sample.h); 0: all. Not in growth mode */
	uint64_t sample_bytes;
	int tasks; /* tell which asyncio task has allocated a block (runtime/cpython/tasks.h) */
	/* share of a process's CPU time that its probes may take (governor.h); 0: no limit */
	double overhead;
	/* windows by hand: their mean length, and the mean time between two; 0: none */
	uint64_t window_on_ns, window_off_ns;
	/* which new processes are followed: none; those that targets start; all */
	enum abi_watch watch;
	/*
	 * Is a new process to be traced? name: its comm, NULL: not known. 1; 0; -ESRCH: it has
	 * ended, and what is known does not tell. NULL: all are.
	 */
	int (*wanted)(void *context, pid_t pid, const char *name);
	void *wanted_context;
	int everywhere; /* all processes are traced: probes are placed in files */
	/* a process that will be added: its files are searched while the programs load; 0: none */
	pid_t first;
	struct plan_target_opts plan;
	const char *debuginfod;  /* servers of debug files; borrowed, NULL: none is asked */
	struct outfile *capture; /* every record is also written there; borrowed, NULL: none */
};

struct session_end {
	uint64_t stopped_ns; /* when (CLOCK_MONOTONIC) tracing stopped; 0: not yet */
	uint64_t probes_ns;  /* how long removing the probes took */
	uint64_t names_ns;   /* how long the last lookups of names took */
};

/* The limit of frames for a process with these layers: native stacks are deeper than Python's. */
static inline uint32_t session_nframe(const struct session_opts *opts, uint32_t layers)
{
	return opts->nframe ? opts->nframe : layers & 1u << EVENT_LAYER_PYTHON ? 16 : 64;
}

#endif
