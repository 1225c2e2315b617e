/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: one BPF side, any number of processes under it, one trace. It owns the life of an
 * attachment: find the runtime, plan, attach, drain, walk the heap, watch for the end, detach.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/events.h"
#include "probe/process/plan_target.h"
#include "runtime/cpython/labels.h"
#include "trace/trace.h"
#include "util/outfile.h"

struct session;

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
	struct label_spec label; /* what is told with each block: --by task, context, local */
	int hash_labels;         /* its names and values are hashed by a key of the session's */
	int by_thread;           /* estimates from windows are made by thread, too: --by thread */
	/* share of a process's CPU time that its probes may take (governor.h); 0: no limit */
	double overhead;
	/* CPU time that a process has to use after it was found, to be attached to; 0: at once */
	uint64_t after_cpu_ns;
	/* what the probes of all processes may take together, in CPUs; 0: no limit */
	double machine_overhead;
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

/*
 * Checks kernel and privileges and loads the programs. 0; -EPERM, -ENOSYS and others as
 * features_check(), with *remedy.
 */
int session_new(struct session **out, const struct session_opts *opts, const char **remedy);
void session_free(struct session *session);

/*
 * Brings a process under trace: 0, or an error with its reason set: -ESRCH it is gone; -ENOENT
 * nothing in it is to be traced; -ENOTSUP an unknown version; -EPERM; … from_start: the process has
 * not run anything yet. On success, a line about the attachment is logged (log_info). A process
 * that is already under trace stays as it is: 0. With session_opts.after_cpu_ns it is attached to
 * later.
 */
int session_add(struct session *session, pid_t pid, int from_start);
/*
 * The same for one that nobody has asked for by itself: what cannot be told of it does not refuse
 * it.
 */
int session_add_followed(struct session *session, pid_t pid);
/* Is the process under trace? */
bool session_has(struct session *session, pid_t pid);

/*
 * Announces the processes that are going to be added. If no other process maps their files, probes
 * are placed in the files, and a forked child is traced from its first instruction. Otherwise
 * probes are per-process, and a child is traced once the session has attached to it. 0, -ENOMEM.
 */
int session_expect(struct session *session, const pid_t *pids, size_t count);
/*
 * Follows the process's children and the programs that it runs, though it is not under trace (yet).
 * 0, -errno.
 */
int session_watch(struct session *session, pid_t pid);
/* Is there a new process that is not fully inspected yet? */
int session_undecided(const struct session *session);
/* How many programs ended before they were inspected: nothing is known of them. */
size_t session_unexamined(const struct session *session);
/*
 * Of processes that were added: how many have not used session_opts.after_cpu_ns so far, and how
 * many ended before they had.
 */
size_t session_resting(const struct session *session);
size_t session_rested(const struct session *session);
/* How many others ended before it was known whether they were wanted. */
size_t session_unnamed(const struct session *session);

/*
 * Drains the ring buffer. Returns the number of records handled; -EOWNERDEAD the process that holds
 * the probes was killed, and the probes are gone: only session_stop() finds further records; or
 * -errno. Notices ends of processes and a full disk, and brings new processes under trace.
 */
int session_drain(struct session *session);
/* The probes' holder, if it lives, keeps what privileges_drop(0, attaches) keeps. 0, -errno. */
int session_confine(struct session *session, int attaches);
/*
 * Windows that are closed late slow their targets: from now on, if there may be any, neither this
 * process nor the probes' holder waits behind others. To be called before privileges are dropped.
 */
void session_hurry(const struct session *session);
/* The same process removes this file if the session is killed. 0, -errno. */
int session_sweep(struct session *session, const char *path);
/* Processes still under trace. */
size_t session_running(const struct session *session);
/* Records drained so far. */
uint64_t session_records(const struct session *session);
/*
 * The share of CPU time that the probes took lately, of the process where it is highest. Of one
 * that takes less than WINDOWS_RATE_MIN it is a share of that, as its budget is. Below 0: not known
 * (see session_opts.overhead).
 */
double session_cost(const struct session *session);
/* Of all processes together, in CPUs. */
struct session_machine {
	double took;  /* what the probes took lately; below 0: not known */
	double limit; /* session_opts.machine_overhead */
	double part;  /* of each process's budget that it leaves, 0 to 1 */
};
void session_machine(const struct session *session, struct session_machine *out);
/*
 * Limits the session to this duration from now: later events are not fed to the trace. To be called
 * once; without it a session has no limit.
 */
void session_limit(struct session *session, uint64_t duration_ns);
/*
 * The time left, less the estimated time of the last heap walks. 0: session_stop() is due;
 * UINT64_MAX: no limit.
 */
uint64_t session_left_ns(const struct session *session);
/* The time until session_drain() has something to do at a certain moment. UINT64_MAX: nothing. */
uint64_t session_due_ns(const struct session *session);
/* A descriptor for poll(): readable when a process under trace has ended. Borrowed. */
int session_ends_fd(const struct session *session);
/* The same: readable when a walk asks for an unwind table. -1: none does. */
int session_unwind_fd(const struct session *session);
/*
 * Walks the heaps of running processes and reconciles the tables with them, before a snapshot.
 * session_drain() also does so periodically, so that a target that ends by itself has a recent
 * walk.
 */
void session_census(struct session *session);
/*
 * Walks the heaps a last time (as many as there is time for, see session_limit()), stops tracing
 * all processes at the same time, removes the probes (see attach_detach()), and drains the
 * remaining records and the loss counters. hurried: the user waits for the end, and slow work is
 * skipped. 0; -EOWNERDEAD as session_drain(), unless that was returned before; -errno.
 */
int session_stop(struct session *session, int hurried);
void session_end_read(const struct session *session, struct session_end *out);
/*
 * Feeds the loss counters to the trace, for a report while it runs; session_drain() does so twice a
 * second. Returns as session_drain().
 */
int session_count_loss(struct session *session);
/*
 * Drains the ring buffer and the loss counters: the trace is then as of now. process is an index in
 * the trace. reconcile: outside exact mode, the process's heap is walked first. 0; -EOWNERDEAD as
 * session_drain(); -errno.
 */
int session_refresh(struct session *session, size_t process, int reconcile);
/*
 * Should a snapshot that is due since then wait? A heap walk would end an open window, which has
 * cost the target what placing its probes takes, whatever it has shown. But it does not wait long.
 */
int session_snapshot_waits(const struct session *session, uint64_t due_ns);
/*
 * After session_stop(): 0; -ENODATA the processes were running and no block of theirs was seen
 * (blind.h), with its reason and *remedy.
 */
int session_check_seen(const struct session *session, const char **remedy);
/* Is the process (its index in the trace) still under trace? */
int session_process_running(const struct session *session, size_t process);
/*
 * Feeds EVENT_CLEAR or EVENT_RESET_PEAK, as of now. After a clear, blocks that are on the heap
 * count as old. 0; -ESRCH it has ended; -errno.
 */
int session_mark(struct session *session, size_t process, uint32_t type);
/* 0, or the error with which writing the capture failed; writing stops at the first error. */
int session_capture_error(const struct session *session);
/* plan_native_unfound() for the processes that were added. */
int session_allocs_unfound(const struct session *session);
/*
 * The `attaches` argument of privileges_drop() for a session that will attach to more processes: 1;
 * 2 if each probe is a perf event and kernel.perf_event_paranoid is 3 or more, since Debian's and
 * Ubuntu's kernels then require CAP_SYS_ADMIN.
 */
int session_attach_rights(const struct session *session);
/* Borrowed. */
struct trace *session_trace(struct session *session);
