/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: one BPF side, any number of processes under it, one trace. It owns the life of an
 * attachment: find the runtime, plan, attach, drain, read the heap, watch for the end, detach.
 */
#ifndef TRACER_SESSION_SESSION_H
#define TRACER_SESSION_SESSION_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/outfile.h"
#include "plan/plan_target.h"
#include "python/runtime.h"
#include "trace/trace.h"

enum session_backend { SESSION_BACKEND_BEST, SESSION_BACKEND_MULTI, SESSION_BACKEND_PERF };

struct session_opts {
	uint32_t nframe;   /* 1-128 */
	size_t ring_bytes; /* 0: the default */
	enum session_backend backend;
	int freeze;      /* stop the target while its heap is read for a report */
	uint64_t budget; /* bytes of all that is kept, see trace_budget() */
	/* trace a sample of the blocks (abi/sample.h); 0: all. Not in growth mode */
	uint64_t sample_bytes;
	/*
	 * share of a process's CPU time that its probes may take (governor.h); 0: whatever they
	 * take
	 */
	double overhead;
	enum abi_watch
		/* what is picked up while it runs: nothing; what targets start; whatever appears */
		watch;
	/* Of what appears: is it to be traced? 1, 0. NULL: all is. */
	int (*wanted)(void *context, pid_t pid);
	void *wanted_context;
	int everywhere; /* probes lie in files whoever has them mapped: all processes are meant */
	struct plan_target_opts plan;
	struct outfile *capture; /* every record goes there too; borrowed, NULL: none */
};

/* Of so many processes each is told of; of more only with -v. */
#define SESSION_TOLD 8u

struct session;

/*
 * Checks kernel and privileges and loads the programs. 0; -EPERM, -ENOSYS and others as
 * features_check(), with *remedy.
 */
int session_new(struct session **out, const struct session_opts *opts, const char **remedy);
void session_free(struct session *session);

/*
 * Brings a process under trace: 0, or an error with its reason set: -ESRCH it is gone; -ENOENT
 * nothing that is wanted is in it; -ENOTSUP a version that is not known; -EPERM; … from_start: the
 * process has not run anything yet. On success the line that tells what was attached to has been
 * printed (log_info). One that is under trace already stays as it is: 0.
 */
int session_add(struct session *session, pid_t pid, int from_start);
/* Is the process under trace? */
int session_has(struct session *session, pid_t pid);

/*
 * These are going to be added: where nobody else has their files mapped, the probes lie in the
 * files, and a forked child is traced from its first instruction; else in each process, and a child
 * is when the session has seen it. 0, -ENOMEM.
 */
int session_expect(struct session *session, const pid_t *pids, size_t count);
/*
 * What the process forks and the programs that it runs are picked up, though it is not under trace
 * (yet). 0, -errno.
 */
int session_watch(struct session *session, pid_t pid);
/* Is a process looked at that has just appeared? */
int session_undecided(const struct session *session);

/*
 * Drains what is there. Returns records handled; -EOWNERDEAD the process that holds the probes was
 * killed, and with it they are gone: what is known is as of then, and no other call but
 * session_stop() finds more; or -errno. Ends of processes are seen here, and a full disk; processes
 * that have appeared are brought under trace.
 */
int session_drain(struct session *session);
/*
 * The process that holds the probes keeps the rights that privileges_drop(0, attaches) keeps. 0,
 * -errno.
 */
int session_confine(struct session *session, int attaches);
/* The same process removes this file should the session be killed. 0, -errno. */
int session_sweep(struct session *session, const char *path);
/* Processes still under trace. */
size_t session_running(const struct session *session);
/* Records that the programs have made, as far as they were drained. */
uint64_t session_records(const struct session *session);
/*
 * What the probes took lately of the CPU time of the process that they took most of: a share. Below
 * 0: it is not known (session_opts.overhead).
 */
double session_cost(const struct session *session);
/*
 * From now on the session goes on for so long at most: nothing that happens later is taken into the
 * trace. To be called once; without it a session has no end of its own.
 */
void session_limit(struct session *session, uint64_t duration_ns);
/*
 * What is left of that, less what the last readings of the heaps will take: 0 session_stop() is
 * due; UINT64_MAX: no limit.
 */
uint64_t session_left_ns(const struct session *session);
/* A descriptor for poll(): readable when a process under trace has ended. Borrowed. */
int session_ends_fd(const struct session *session);
/*
 * Reads the heaps of running processes and reconciles the tables with them: before a snapshot is
 * taken of one that runs. session_drain() does so now and then of its own accord, so that a target
 * that ends by itself has a late one.
 */
void session_census(struct session *session);
/*
 * Reads the heaps a last time (as many as there is time for, see session_limit()), stops the clock
 * for every process at once, takes the probes out (see attach_detach()), drains the rest and the
 * loss counters. hurried: somebody waits for the end, and what is slow is left. 0; -EOWNERDEAD as
 * session_drain(), unless that was told before; -errno.
 */
int session_stop(struct session *session, int hurried);
/* What the end has taken after the clock was stopped. */
struct session_end {
	/* when (CLOCK_MONOTONIC) session_stop() had forgotten the targets; 0: not yet */
	uint64_t stopped_ns;
	uint64_t probes_ns, names_ns;
};
void session_end_read(const struct session *session, struct session_end *out);
/*
 * Brings the loss counters into the trace, for a report while it runs; a session does so twice a
 * second besides. As session_drain().
 */
int session_count_loss(struct session *session);
/*
 * Drains what there is and counts the losses: the trace is then as of now. reconcile: in census
 * mode, the process's heap (its index in the trace) is read first. 0; -EOWNERDEAD as
 * session_drain(); -errno.
 */
int session_refresh(struct session *session, size_t process, int reconcile);
/*
 * After session_stop(): 0; -ENODATA its processes were at work and not one block of theirs was seen
 * (blind.h), with its reason and *remedy.
 */
int session_check_seen(const struct session *session, const char **remedy);
/* Is the process (its index in the trace) still there and under trace? */
int session_process_running(const struct session *session, size_t process);
/*
 * Puts EVENT_CLEAR or EVENT_RESET_PEAK into the stream, as of now. After a clear what is on the
 * heap counts as old. 0; -ESRCH it has ended; -errno.
 */
int session_mark(struct session *session, size_t process, uint32_t type);
/* 0, or the error with which writing the capture failed; nothing was written to it since. */
int session_capture_error(const struct session *session);
/* plan_native_unfound(), of the processes that were added. */
int session_allocs_unfound(const struct session *session);
/*
 * What privileges_drop() must leave to a session that will attach to more: 1; 2 where each probe is
 * a perf event, and kernel.perf_event_paranoid is 3 or more: Debian's and Ubuntu's kernels then
 * want CAP_SYS_ADMIN for them.
 */
int session_attach_rights(const struct session *session);
/* Borrowed. */
struct trace *session_trace(struct session *session);

#endif
