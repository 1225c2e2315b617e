/* SPDX-License-Identifier: Apache-2.0 */
#include "session/session.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "attach/links/hints.h"
#include "attach/links/link_keeper.h"
#include "attach/links/links.h"
#include "object/symbols/symbols.h"
#include "probe/process/plan_target.h"
#include "proc/patience.h"
#include "proc/priority.h"
#include "proc/process.h"
#include "runtime/cpython/code.h"
#include "session/doctor/blind.h"
#include "session/follow.h"
#include "session/returns.h"
#include "session/target/census.h"
#include "session/target/collections.h"
#include "session/target/cost.h"
#include "session/target/labels.h"
#include "session/target/state.h"
#include "session/target/symbols.h"
#include "session/target/target.h"
#include "session/target/target_governor.h"
#include "session/unwind_tables.h"
#include "snapshot/estimate.h"
#include "trace/capture.h"
#include "util/buffer.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/text.h"

/* --- session census --------------------------------------------------------------------------- */

/* When the heaps and the RSS of targets are read. session.h has the limit of its duration. */

/*
 * Reads the heaps and the RSS of targets, within the limit of the session.
 *
 * The limit is the latest time of an event that is taken; later ones may be in the ring buffer, and
 * are dropped. The last walks of the heaps must fit in the limit, since a block that a walk finds
 * and whose event was dropped would count as unseen. So session_stop() is due before the limit, by
 * the time that the previous walks took. If there are many heaps, some are left as of their
 * previous walk. A walk that has begun moves the limit to its own end
 * (session/target/census.c).
 */

#define CENSUS_SHARE      50           /* periodic walks take at most 1/50 of the time */
#define CENSUS_PAUSE_NS   500000000ull /* at least, between two walks of a heap */
#define CENSUS_STRETCH_NS 20000000ull  /* of walks, until the ring buffer is drained */
#define LAST_SHARE        2            /* all last walks take at most 1/2 of the limited time */
#define LAST_TIMES        2            /* a walk may take twice as long as the previous one */
#define LAST_MARGIN_NS    10000000ull
#define HURRY_NS          1000000000ull /* for the last walks, if the user waits for the end */
#define RSS_PAUSE_NS      500000000ull  /* between two reads of a process's RSS, */
#define RSS_PAUSE_OF      100u          /* and once more for every 100 processes */

void session_limit(struct session *session, uint64_t duration_ns)
{
	session->limit_ns = clock_ns(CLOCK_MONOTONIC) + duration_ns;
	session->limit_duration_ns = duration_ns;
	patience_end_at(session->limit_ns);
}

static uint64_t last_walks_ns(const struct session *session)
{
	uint64_t sum = LAST_MARGIN_NS, most = session->limit_duration_ns / LAST_SHARE;

	for (size_t i = 0; i < session->count; i++)
		if (!session->targets[i]->ended)
			sum += LAST_TIMES * session->targets[i]->census_cost_ns;
	return sum < most ? sum : most;
}

uint64_t session_left_ns(const struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC), needed = last_walks_ns(session);

	if (!session->limit_ns)
		return UINT64_MAX;
	return now + needed < session->limit_ns ? session->limit_ns - needed - now : 0;
}

/* Feeds the RSS as of that time: of all targets. */
static void session_rss_read(struct session *session, uint64_t time_ns)
{
	for (size_t i = 0; i < session->count; i++)
		target_rss_read(session, session->targets[i], time_ns);
}

void session_census(struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		target_reconcile(session, session->targets[i], 0, session->opts.freeze);
	session_rss_read(session, clock_ns(CLOCK_MONOTONIC));
	session_name(session);
}

static bool census_is_due(const struct session *session, const struct target *target, uint64_t now)
{
	uint64_t pause = target->census_cost_ns * CENSUS_SHARE;

	if (pause < CENSUS_PAUSE_NS)
		pause = CENSUS_PAUSE_NS;
	/* malloc's heap is read between windows (target_recheck_all()). */
	return now - target->census_ns >= pause && !target_window_busy(target) &&
	       (!target->heap_unreadable || target_is_pages(target)) &&
	       !session_is_beyond(session, now + target->census_cost_ns);
}

/*
 * Walks the heaps that are due: each every half second, or less often if walks would take more than
 * 2 % of the time. Round-robin, for at most 20 ms a call.
 */
static void session_census_due(struct session *session, uint64_t now)
{
	uint64_t begin = now;

	for (size_t i = 0; i < session->count && now - begin < CENSUS_STRETCH_NS; i++) {
		struct target *target = session->targets[session->census_turn++ % session->count];

		if (!census_is_due(session, target, now))
			continue;
		target_census(session, target, 0, 0);
		now = clock_ns(CLOCK_MONOTONIC);
	}
}

/* The last walk of all heaps, as far as there is time. */
static void session_census_last(struct session *session, int hurried)
{
	uint64_t until_ns = hurried ? clock_ns(CLOCK_MONOTONIC) + HURRY_NS : UINT64_MAX;

	if (session->limit_ns && session->limit_ns < until_ns)
		until_ns = session->limit_ns;
	for (size_t i = 0; i < session->count && clock_ns(CLOCK_MONOTONIC) < until_ns; i++)
		target_reconcile(session, session->targets[i], 0, session->opts.freeze);
}

/* Of those that are due. */
static void session_rss_due(struct session *session, uint64_t now)
{
	uint64_t pause = RSS_PAUSE_NS * (1 + session->count / RSS_PAUSE_OF);

	for (size_t i = 0; i < session->count; i++)
		if (now - session->targets[i]->rss_ns >= pause)
			target_rss_read(session, session->targets[i], now);
}

/* --- session ---------------------------------------------------------------------------------- */

/* Between two reads of the loss counters: a truncated capture must hold a recent one. */
#define LOSS_PERIOD_NS 500000000ull
#define FOLLOW_WAIT_NS 250000000ull /* new processes wait for a window's end, but not longer */
#define WINDOW_WAIT_NS 500000000ull /* so do snapshots at an interval */

/*
 * The verifier requires some records to be reserved with a constant size: the record itself may be
 * shorter.
 */
static int record_handle(void *context, void *record, size_t size)
{
	const struct event_header *header = record;
	struct event_task hashed;
	struct target *target;

	((struct session *)context)->records++;
	if (session_is_beyond(context, header->time_ns))
		return 0;
	if (follow_takes(context, record))
		return 0;
	/* Name its addresses before its last state is taken or its pid can be reused. */
	if (header->type == EVENT_FINALIZE || header->type == EVENT_EXIT ||
	    header->type == EVENT_EXEC) {
		target = target_find(context, header->tgid);
		if (target && target_symbols_name(context, target) == -ENOMEM)
			return -ENOMEM;
	}
	size = header->size < size ? header->size : size;
	int err = session_feed(context, session_label_hash(context, record, size, &hashed), size);
	follow_note(context, record);
	return err;
}

/*
 * Reads from user space, if it still exists, what BPF could not copy: a page that was not resident,
 * a long table.
 */
static void code_missing(void *context, uint32_t tgid, uint64_t code_id, uint64_t address,
			 uint32_t missing)
{
	struct session *session = context;
	struct target *target = target_find(session, tgid);
	struct event_header header = {.time_ns = clock_ns(CLOCK_MONOTONIC), .tgid = tgid};
	struct buffer records = {0};
	int err;

	if (!target)
		return;
	err = code_read(target->runtime.space, &target->runtime.target, address, code_id, &header,
			&records);
	if (err)
		log_debug("code object at 0x%llx, parts 0x%x: %s", (unsigned long long)address,
			  missing, error_reason(err));
	for (size_t offset = 0; !err && offset + sizeof(header) <= records.size;) {
		struct event_header *record = (void *)(records.data + offset);

		session_feed(session, record, record->size);
		offset += record->size;
	}
	buffer_free(&records);
}

/*
 * Plans the first process, for the cache of plans: to search an interpreter's file takes as long as
 * to load the programs. The plan itself is made again when the process is added, since it may load
 * files meanwhile; an error is told then.
 */
static void first_plan(void *context)
{
	struct session *session = context;
	struct plan_target plans = {0};

	if (!plan_target(session->opts.first, &session->opts.plan, &session->plans, &plans))
		plan_target_free(&plans);
	error_clear();
}

static int programs_load(struct session *session, const struct attach_opts *opts,
			 const char **remedy)
{
	int err = attach_new(&session->attach, &session->features, opts);

	if (!err)
		session_unwind_begin(session);
	return err ? hint_explain(HINT_LOAD, err, remedy) : 0;
}

static void opts_take(struct session *session, const struct session_opts *opts)
{
	session->opts = *opts;
	/* In windows mode it is seen between windows who takes pools. */
	session->opts.plan.python.pools = opts->overhead > 0 || opts->window_on_ns;
}

static int label_key_make(struct session *session)
{
	struct siphash_key *key = &session->label_key;

	if (!session->opts.hash_labels)
		return 0;
	return getrandom(key, sizeof(*key), 0) == sizeof(*key) ? 0 : error_errno();
}

int session_new(struct session **out, const struct session_opts *opts, const char **remedy)
{
	struct session *session = calloc(1, sizeof(*session));
	struct trace_hooks hooks = {.code_missing = code_missing, .context = session};
	const struct abi_target execd = {
		.nframe = session_nframe(opts, execd_layers(opts)),
		.sample_bytes = opts->sample_bytes,
		.page_share = estimate_page_share(opts->sample_bytes),
		.layers = execd_layers(opts),
	};
	struct attach_opts attach = {
		.ring_bytes = opts->ring_bytes,
		.no_session = opts->backend == SESSION_BACKEND_MULTI,
		.no_multi = opts->backend == SESSION_BACKEND_PERF,
		.watch = opts->watch,
		.execd = &execd,
		.sampling = opts->sample_bytes || opts->overhead > 0,
		.label_source = opts->label.source,
		.counting = 1,
		.no_native = opts->plan.layers == 1u << EVENT_LAYER_PYTHON,
		.no_python = opts->plan.layers && !(opts->plan.layers & 1u << EVENT_LAYER_PYTHON),
		.pages = opts->plan.layers == 1u << EVENT_LAYER_PAGES,
		.record = record_handle,
		/*
		 * While the kernel looks for the memory of a large ring buffer, in a cgroup that
		 * has too little of it, whoever else asks for memory is killed.
		 */
		.meanwhile = opts->first && !opts->ring_bytes ? first_plan : NULL,
		.context = session,
	};
	int err;

	error_clear();
	*remedy = NULL;
	if (!session)
		return -ENOMEM;
	opts_take(session, opts);
	session->next_space_id = 1;
	hit_cost_init(&session->hit_cost);
	/* libbpf would log errors of its own while features are probed */
	links_silence_libbpf();
	err = session_targets_begin(session)
			?: label_key_make(session)
			?: features_probe(&session->features)
			?: features_check(&session->features, remedy)
			?: trace_new(&session->trace, &hooks);
	if (!err)
		trace_budget(session->trace, opts->budget);
	if (!err)
		err = plan_caches_new(&session->plans, &opts->plan)
				?: programs_load(session, &attach, remedy)
				?: follow_new(session)
				?: session_governor_begin(session);
	if (!err && opts->capture)
		err = capture_begin(opts->capture);
	if (err) {
		session_free(session);
		return err;
	}
	*out = session;
	return 0;
}

void session_free(struct session *session)
{
	if (!session)
		return;
	hit_cost_free(&session->hit_cost);
	unwind_loader_free(session->unwind);
	attach_free(session->attach);
	session_targets_free(session);
	follow_free(session);
	collections_free(session);
	symbols_free(session->symbols);
	plan_caches_free(&session->plans);
	trace_free(session->trace);
	free(session);
}

size_t session_running(const struct session *session)
{
	return session_targets_running(session);
}

uint64_t session_records(const struct session *session)
{
	return session->records;
}

uint64_t session_due_ns(const struct session *session)
{
	return session_windows_left_ns(session, clock_ns(CLOCK_MONOTONIC));
}

static double target_share(const struct target *target, uint64_t now_ns)
{
	return target->mode == EVENT_MODE_WINDOWS && !target->off
		       ? windows_share(&target->windows.windows, now_ns)
		       : target->governor.governor.share;
}

double session_cost(const struct session *session)
{
	double most = session->opts.overhead > 0 ? 0 : -1;
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);

	for (size_t i = 0; i < session->count && most >= 0; i++)
		if (!session->targets[i]->ended)
			most = fmax(most, target_share(session->targets[i], now_ns));
	return most;
}

void session_machine(const struct session *session, struct session_machine *out)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);

	*out = (struct session_machine){.took = session->opts.overhead > 0 ? 0 : -1,
					.limit = session->opts.machine_overhead,
					.part = session->part > 0 ? session->part : 1};
	for (size_t i = 0; i < session->count && out->took >= 0; i++) {
		const struct target *target = session->targets[i];
		int windows = target->mode == EVENT_MODE_WINDOWS && !target->off;
		double rate = target_rate(target);

		if (!target->ended)
			out->took += target_share(target, now_ns) *
				     (windows ? fmax(rate, WINDOWS_RATE_MIN) : rate);
	}
}

int session_ends_fd(const struct session *session)
{
	return session->ends;
}

static int links_check(struct session *session)
{
	int err = attach_check(session->attach);

	session->links_lost |= err != 0;
	return err;
}

int session_count_loss(struct session *session)
{
	struct event_loss record = {
		.header = {.type = EVENT_LOSS,
			   .size = sizeof(record),
			   .time_ns = clock_ns(CLOCK_MONOTONIC)},
	};
	int err = links_check(session) ?: attach_loss(session->attach, record.counts);

	session->loss_ns = record.header.time_ns;
	/* The time of the record is the time up to which the tables are known. */
	if (session->end.stopped_ns)
		record.header.time_ns = session->end.stopped_ns;
	if (!err) {
		follow_lost(session, record.counts[LOSS_PROCESS]);
		returns_watch(session, record.counts[LOSS_RETURN]);
	}
	return err ?: session_feed(session, &record, sizeof(record));
}

static struct target *target_at(const struct session *session, size_t process)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->targets[i]->index == process && !session->targets[i]->ended)
			return session->targets[i];
	return NULL;
}

int session_process_running(const struct session *session, size_t process)
{
	return target_at(session, process) != NULL;
}

int session_refresh(struct session *session, size_t process, int reconcile)
{
	struct target *target = target_at(session, process);

	/* In exact mode the table is complete without a walk. */
	if (reconcile && target && target->mode != EVENT_MODE_EXACT)
		target_reconcile(session, target, 0, session->opts.freeze);
	session_pull(session);
	if (target)
		target_rss_read(session, target, clock_ns(CLOCK_MONOTONIC));
	if (target)
		target_symbols_name(session, target);
	return session_count_loss(session);
}

int session_mark(struct session *session, size_t process, uint32_t type)
{
	struct target *target = target_at(session, process);
	struct event_mark record = {.header = {.type = type,
					       .size = sizeof(record),
					       .time_ns = clock_ns(CLOCK_MONOTONIC)}};
	int err;

	if (!target)
		return -ESRCH;
	record.header.tgid = record.header.tid = target->pid;
	err = session_feed(session, &record, sizeof(record));
	if (!err && type == EVENT_CLEAR)
		target_reconcile(session, target, 1, 0);
	return err;
}

int session_snapshot_waits(const struct session *session, uint64_t due_ns)
{
	return session_windows_open(session) && clock_ns(CLOCK_MONOTONIC) - due_ns < WINDOW_WAIT_NS;
}

int session_drain(struct session *session)
{
	int count = attach_drain(session->attach, SESSION_DRAIN_BATCH);
	uint64_t now;
	int err;

	if (count < 0)
		return count;
	err = links_check(session);
	if (err)
		return err;
	if (session->capture_error)
		return session->capture_error;
	/* Even if the buffer is never empty: otherwise new processes would never be attached to. */
	session_targets_bury(session);
	now = clock_ns(CLOCK_MONOTONIC);
	if (session_is_beyond(session, now))
		return count;
	session_windows_due(session, now);
	session_unwind_step(session);
	/* Attaching to other processes takes longer than a window may. */
	if (!session_windows_open(session) || now - session->followed_ns > FOLLOW_WAIT_NS) {
		follow_step(session);
		now = session->followed_ns = clock_ns(CLOCK_MONOTONIC);
	}
	if (count < (int)SESSION_DRAIN_BATCH) {
		session_labels_due(session, now);
		session_census_due(session, now);
		session_rss_due(session, now);
		for (size_t i = 0; i < session->count; i++)
			target_symbols_watch(session, session->targets[i], now);
		session_names_prepare(session);
	}
	session_governor_due(session, clock_ns(CLOCK_MONOTONIC));
	session_cost_due(session, clock_ns(CLOCK_MONOTONIC));
	if (clock_ns(CLOCK_MONOTONIC) - session->loss_ns >= LOSS_PERIOD_NS) {
		err = session_count_loss(session);
		if (err)
			return err;
	}
	return count;
}

/* It may write a probe's breakpoint back once the probes are gone. */
static void debuggers_tell(const struct session *session)
{
	struct process_info info;
	size_t reported = 0;

	for (size_t i = 0; i < session->count && reported < SESSION_LOGS; i++) {
		const struct target *target = session->targets[i];

		if (target->ended || process_info_read(target->pid, &info) || !info.debugger)
			continue;
		reported++;
		log_info("PID %d: PID %d still traces it by ptrace. If that is a debugger with a "
			 "breakpoint at a probe's place (malloc, free), what it restores there is "
			 "the probe's breakpoint, which kills the process once it is reached. A "
			 "new trace of the process removes it",
			 target->pid, (int)info.debugger);
	}
}

/* lost: the process that held them was killed, and its end has removed them. */
static void probes_remove(struct session *session, int lost)
{
	int slowly = attach_detaches_slowly(session->attach);
	pid_t slow;

	if (slowly)
		log_info("this kernel removes the probes one by one, which continues for a while "
			 "after the end; until then each costs a trap");
	if (attach_detach(session->attach) || slowly || lost)
		return;
	slow = patience_slow();
	if (slow)
		log_info("the probes are still to be removed: PID %d keeps its memory map locked, "
			 "which the kernel waits for; " LINK_KEEPER_NAME
			 " removes them, and until then each costs a trap",
			 (int)slow);
}

/* The time up to which events count, as of now. */
static uint64_t until_of(const struct session *session)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);

	return session_is_beyond(session, now_ns) ? session->limit_ns : now_ns;
}

int session_stop(struct session *session, int hurried)
{
	int lost = session->links_lost ? 0 : links_check(session), err;
	uint64_t began_ns;

	patience_end_at(clock_ns(CLOCK_MONOTONIC));
	session_names_end(session, hurried);
	session->opts.watch = ABI_WATCH_NONE; /* new processes are not followed any more */
	/* Blocks of events after the last walk may have died unseen: stop right after it. */
	session_census_last(session, hurried);
	if (session->collections_count) /* who was told of them is told of the last ones, too */
		collections_read(session, true);
	for (size_t i = 0; i < session->count; i++) {
		/* Its time is not to be that of the tables, if it is later. */
		target_cost_feed(session, session->targets[i], until_of(session));
		target_forget(session, session->targets[i]);
	}
	/* From here on the probes do nothing. */
	began_ns = clock_ns(CLOCK_MONOTONIC);
	session->end.stopped_ns = until_of(session);
	session_rss_read(session, session->end.stopped_ns);
	probes_remove(session, lost || session->links_lost);
	debuggers_tell(session);
	session->end.probes_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
	session_pull(session);
	execs_end(session);
	if (!hurried)
		session_names_end(session, 0); /* the time of the walks does not count for names */
	began_ns = clock_ns(CLOCK_MONOTONIC);
	session_name(session);
	session->end.names_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
	session_unwind_tell(session);
	err = session_count_loss(session);
	return lost ? lost : err;
}

void session_end_read(const struct session *session, struct session_end *out)
{
	*out = session->end;
}

int session_check_seen(const struct session *session, const char **remedy)
{
	struct blind_facts facts;

	blind_facts_read(session->trace, &facts);
	return blind_check(&facts, remedy);
}

int session_capture_error(const struct session *session)
{
	return session->capture_error;
}

int session_allocs_unfound(const struct session *session)
{
	return plan_native_unfound(session->plans.native);
}

int session_attach_rights(const struct session *session)
{
	struct hint_facts facts;

	hint_facts_read(&facts);
	return attach_is_by_events(session->attach) && facts.perf_event_paranoid > 2 ? 2 : 1;
}

void session_hurry(const struct session *session)
{
	if (session->opts.overhead > 0 || session->opts.window_on_ns)
		priority_hurry(attach_holder(session->attach));
}

int session_confine(struct session *session, int attaches)
{
	session_cost_trap_begin(session);
	/* If the holder was killed, session_drain() says so. */
	int err = attach_confine(session->attach, attaches);

	return attach_check(session->attach) ? 0 : err;
}

int session_sweep(struct session *session, const char *path)
{
	return attach_sweep(session->attach, path);
}

struct trace *session_trace(struct session *session)
{
	return session->trace;
}
