/* SPDX-License-Identifier: Apache-2.0 */
#include "session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attach/links.h"
#include "attach/obstacles.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "python/code.h"
#include "session/session_state.h"
#include "symbols/symbols.h"
#include "trace/blind.h"
#include "trace/capture.h"

/*
 * Records handed over in one go; between two goes the session looks at the clock and at who has
 * ended.
 */
#define DRAIN_BATCH        (1u << 16)
#define RING_BYTES_DEFAULT (64u << 20) /* as struct attach_opts says */
#define RECORD_BYTES_MIN   32u         /* a mark and the ring buffer's own header */
/* How often the loss counters are looked at: a capture that is cut off has a late reading, too. */
#define LOSS_PERIOD_NS 500000000ull

int session_feed(struct session *session, const void *record, size_t size)
{
	int err;

	if (session->opts.capture && !session->capture_error)
		session->capture_error = capture_record(session->opts.capture, record, size);
	err = trace_feed(session->trace, record, size);
	return account_is_full(err) ? err : 0; /* a malformed record is counted there */
}

/*
 * The ring buffer's room for a record is constant where the verifier wants it so: the record proper
 * may be shorter.
 */
static int record_handle(void *context, void *record, size_t size)
{
	const struct event_header *header = record;
	struct member *member;

	((struct session *)context)->records++;
	if (session_is_beyond(context, header->time_ns))
		return 0;
	if (pick_up_takes(context, record))
		return 0;
	/* Its last state is about to be kept, or its number to be another's. */
	if (header->type == EVENT_FINALIZE || header->type == EVENT_EXIT ||
	    header->type == EVENT_EXEC) {
		member = member_find(context, header->tgid);
		if (member && member_symbols_name(context, member) == -ENOMEM)
			return -ENOMEM;
	}
	int err = session_feed(context, record, header->size < size ? header->size : size);
	pick_up_note(context, record);
	return err;
}

void session_pull(void *context)
{
	struct session *session = context;
	size_t ring = session->opts.ring_bytes ? session->opts.ring_bytes : RING_BYTES_DEFAULT;

	/*
	 * No more than it can have held when this began: it may be filled as fast as it is drained.
	 */
	for (size_t batches = ring / RECORD_BYTES_MIN / DRAIN_BATCH + 1; batches; batches--)
		if (attach_drain(session->attach, DRAIN_BATCH) < (int)DRAIN_BATCH)
			break;
}

/*
 * What BPF could not copy (a page that was not resident, a long table) is read from here, if it is
 * still there.
 */
static void code_missing(void *context, uint32_t tgid, uint64_t code_id, uint64_t address,
			 uint32_t missing)
{
	struct session *session = context;
	struct member *member = member_find(session, tgid);
	struct event_header header = {.time_ns = clock_ns(CLOCK_MONOTONIC), .tgid = tgid};
	struct buffer records = {0};
	int err;

	if (!member)
		return;
	err = code_read(member->pid, &member->runtime.target, address, code_id, &header, &records);
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

static int programs_load(struct session *session, const struct attach_opts *opts,
			 const char **remedy)
{
	int err = attach_new(&session->attach, &session->features, opts);

	return err ? obstacle_explain(OBSTACLE_LOAD, err, remedy) : 0;
}

int session_new(struct session **out, const struct session_opts *opts, const char **remedy)
{
	struct session *session = calloc(1, sizeof(*session));
	struct trace_hooks hooks = {.code_missing = code_missing, .context = session};
	const struct abi_target newborn = {
		.nframe = opts->nframe,
		.sample_bytes = opts->sample_bytes,
		.layers = newborn_layers(opts),
	};
	struct attach_opts attach = {
		.ring_bytes = opts->ring_bytes,
		.no_session = opts->backend == SESSION_BACKEND_MULTI,
		.no_multi = opts->backend == SESSION_BACKEND_PERF,
		.watch = opts->watch,
		.newborn = &newborn,
		.sampling = opts->sample_bytes || opts->overhead > 0,
		.counting = 1,
		.record = record_handle,
		.context = session,
	};
	int err;

	error_clear();
	*remedy = NULL;
	if (!session)
		return -ENOMEM;
	session->opts = *opts;
	session->next_space = 1;
	session->hit_cost.stats = -1;
	/* it has words of its own about what is missing, also while it is asked */
	links_silence_libbpf();
	err = members_begin(session);
	if (!err)
		err = features_probe(&session->features);
	if (!err)
		err = features_check(&session->features, remedy);
	if (!err)
		err = trace_new(&session->trace, &hooks);
	if (!err)
		trace_budget(session->trace, opts->budget);
	if (!err)
		err = plan_caches_new(&session->plans, &opts->plan);
	if (!err)
		err = programs_load(session, &attach, remedy);
	if (!err)
		err = pick_up_new(session);
	if (!err)
		err = session_governor_begin(session);
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
	session_governor_end(session);
	attach_free(session->attach);
	members_free(session);
	pick_up_free(session);
	symbols_free(session->symbols);
	plan_caches_free(&session->plans);
	trace_free(session->trace);
	free(session);
}

size_t session_running(const struct session *session)
{
	size_t running = 0;

	for (size_t i = 0; i < session->count; i++)
		running += !session->members[i]->ended;
	return running;
}

uint64_t session_records(const struct session *session)
{
	return session->records;
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
	/* The record tells up to when the tables are known. */
	if (session->end.stopped_ns)
		record.header.time_ns = session->end.stopped_ns;
	if (!err)
		pick_up_lost(session, record.counts[LOSS_PROCESS]);
	return err ? err : session_feed(session, &record, sizeof(record));
}

static struct member *member_at(const struct session *session, size_t process)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->members[i]->index == process && !session->members[i]->ended)
			return session->members[i];
	return NULL;
}

int session_process_running(const struct session *session, size_t process)
{
	return member_at(session, process) != NULL;
}

int session_refresh(struct session *session, size_t process, int reconcile)
{
	struct member *member = member_at(session, process);

	/* In exact mode the table is what it is without. */
	if (reconcile && member && member->mode != EVENT_MODE_EXACT)
		member_reconcile(session, member, 0, session->opts.freeze);
	session_pull(session);
	if (member)
		member_rss_read(session, member, clock_ns(CLOCK_MONOTONIC));
	if (member)
		member_symbols_name(session, member);
	return session_count_loss(session);
}

int session_mark(struct session *session, size_t process, uint32_t type)
{
	struct member *member = member_at(session, process);
	struct event_mark record = {.header = {.type = type,
					       .size = sizeof(record),
					       .time_ns = clock_ns(CLOCK_MONOTONIC)}};
	int err;

	if (!member)
		return -ESRCH;
	record.header.tgid = record.header.tid = member->pid;
	err = session_feed(session, &record, sizeof(record));
	if (!err && type == EVENT_CLEAR)
		member_reconcile(session, member, 1, 0);
	return err;
}

int session_drain(struct session *session)
{
	int count = attach_drain(session->attach, DRAIN_BATCH);
	uint64_t now;
	int err;

	if (count < 0)
		return count;
	err = links_check(session);
	if (err)
		return err;
	if (session->capture_error)
		return session->capture_error;
	/* Also when there is always more: who comes then would never be seen. */
	members_bury(session);
	now = clock_ns(CLOCK_MONOTONIC);
	if (session_is_beyond(session, now))
		return count;
	pick_up(session);
	now = clock_ns(CLOCK_MONOTONIC);
	if (count < (int)DRAIN_BATCH) {
		session_census_due(session, now);
		session_rss_due(session, now);
		for (size_t i = 0; i < session->count; i++)
			member_symbols_watch(session, session->members[i], now);
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

int session_stop(struct session *session, int hurried)
{
	int lost = session->links_lost ? 0 : links_check(session), err;
	uint64_t began_ns;

	session_names_end(session, hurried);
	session->opts.watch = ABI_WATCH_NONE; /* nobody is picked up any more */
	/* What the events after the last reading tell of may be dead again: none after it. */
	session_census_last(session, hurried);
	for (size_t i = 0; i < session->count; i++)
		member_forget(session, session->members[i]);
	/* From here on the probes do nothing. */
	began_ns = clock_ns(CLOCK_MONOTONIC);
	session->end.stopped_ns =
		session_is_beyond(session, began_ns) ? session->limit_ns : began_ns;
	session_rss_read(session, session->end.stopped_ns);
	if (attach_detaches_slowly(session->attach))
		log_info("this kernel takes the probes out one by one, which goes on for a while "
			 "after the end; until then each costs a trap");
	attach_detach(session->attach);
	session->end.probes_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
	session_pull(session);
	newborns_end(session);
	if (!hurried)
		session_names_end(session, 0); /* what the census has taken is no time for names */
	began_ns = clock_ns(CLOCK_MONOTONIC);
	session_name(session);
	session->end.names_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
	if (session->unlooked)
		log_info(
			"%zu program%s ended before %s could be looked at, without an event: %s in "
			"no table",
			session->unlooked, session->unlooked == 1 ? "" : "s",
			session->unlooked == 1 ? "it" : "they",
			session->unlooked == 1 ? "it is" : "they are");
	err = session_count_loss(session);
	return lost ? lost : err;
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
	struct obstacle_facts facts;

	obstacle_facts_read(&facts);
	return attach_is_by_events(session->attach) && facts.perf_event_paranoid > 2 ? 2 : 1;
}

int session_confine(struct session *session, int attaches)
{
	return attach_confine(session->attach, attaches);
}

int session_sweep(struct session *session, const char *path)
{
	return attach_sweep(session->attach, path);
}

struct trace *session_trace(struct session *session)
{
	return session->trace;
}
