/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a target. The list owns every target from target_new() on. Members are never freed
 * while records are drained, since callers of session_pull() may hold pointers to them.
 *
 *   target_new()      it is in the list; records do not find it yet
 *   target_begin()    its first record is in the stream; target_find() finds it
 *   target_end(), EVENT_EXIT, EVENT_EXEC, EVENT_DISCARD: ended; its pid may be reused
 *   session_targets_bury()    its probes are out and its memory is freed
 *
 * target_abandon() is for an attachment that fails at any of these points.
 */
#include "session/target/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "probe/process/plan_target.h"
#include "proc/process_service.h"
#include "session/target/state.h"
#include "session/target/symbols.h"
#include "trace/capture.h"
#include "util/array.h"
#include "util/buffer.h"
#include "util/clock.h"
#include "util/error.h"

/* --- feed ------------------------------------------------------------------------------------- */

#define RING_BYTES_DEFAULT (64u << 20) /* as struct attach_opts says */
#define RECORD_BYTES_MIN   32u         /* a mark and the ring buffer's own header */

int session_feed(struct session *session, const void *record, size_t size)
{
	int err;

	if (session->opts.capture && !session->capture_error)
		session->capture_error = capture_record(session->opts.capture, record, size);
	err = trace_feed(session->trace, record, size);
	return account_is_full(err) ? err : 0; /* a malformed record is counted there */
}

/* Appends a text of at most EVENT_MAX_TEXT bytes; how many there are. */
static int text_append(struct buffer *record, const char *text, uint16_t *bytes)
{
	size_t size = strnlen(text, EVENT_MAX_TEXT);

	*bytes = (uint16_t)size;
	return buffer_append(record, text, size);
}

static int frame_append(struct buffer *record, const struct symbols_frame *frame)
{
	static const char zeros[8];
	struct event_symbol_frame head = {.line = frame->line};
	size_t at = record->size;
	int err = buffer_append(record, &head, sizeof(head))
			?: text_append(record, frame->function, &head.function_bytes)
			?: text_append(record, frame->filename, &head.filename_bytes)
			?: buffer_append(record, zeros, -record->size & 7);

	if (!err)
		memcpy(record->data + at, &head, sizeof(head));
	return err;
}

static int binary_append(struct buffer *record, const struct symbols_binary *binary)
{
	static const char zeros[8];
	const struct event_symbol_binary head = {
		.start = binary->segment.start,
		.limit = binary->segment.limit,
		.offset = binary->segment.offset,
		.build_id_bytes = (uint32_t)strlen(binary->build_id),
	};

	return buffer_append(record, &head, sizeof(head))
		       ?: buffer_append(record, binary->build_id, head.build_id_bytes)
		       ?: buffer_append(record, zeros, -record->size & 7);
}

int session_feed_symbol(struct session *session, const struct target *target, uint64_t address,
			const struct symbols_frame *frames, uint32_t count,
			const struct symbols_binary *binary, int slow)
{
	/* The mapped file, if the outermost frame names another one. */
	bool file = binary && strcmp(binary->path, frames[count - 1].filename) != 0;
	bool is_elf = binary && binary->segment.limit;
	const struct symbols_frame extra = {.function = "", .filename = file ? binary->path : ""};
	struct event_symbol head = {
		.header = {.type = EVENT_SYMBOL,
			   .time_ns = trace_process_at(session->trace, target->index)->end_ns,
			   .tgid = target->pid,
			   .tid = target->pid},
		.address = address,
		.count = count,
		.flags = (slow ? EVENT_SYMBOL_SLOW : 0) | (file ? EVENT_SYMBOL_FILE : 0) |
			 (is_elf ? EVENT_SYMBOL_BINARY : 0),
	};
	struct buffer record = {0};
	int err = buffer_append(&record, &head, sizeof(head));

	for (uint32_t i = 0; i < count && !err; i++)
		err = frame_append(&record, &frames[i]);
	if (!err && file)
		err = frame_append(&record, &extra);
	if (!err && is_elf)
		err = binary_append(&record, binary);
	if (!err) {
		((struct event_header *)record.data)->size = (uint32_t)record.size;
		err = session_feed(session, record.data, record.size);
	}
	buffer_free(&record);
	return err;
}

void session_pull(void *context)
{
	struct session *session = context;
	size_t ring = session->opts.ring_bytes ? session->opts.ring_bytes : RING_BYTES_DEFAULT;

	/*
	 * At most what it can have held at the beginning: it may be filled as fast as it is
	 * drained.
	 */
	for (size_t batches = ring / RECORD_BYTES_MIN / SESSION_DRAIN_BATCH + 1; batches; batches--)
		if (attach_drain(session->attach, SESSION_DRAIN_BATCH) < (int)SESSION_DRAIN_BATCH)
			break;
}

/* --- target ----------------------------------------------------------------------------------- */

#define ENDS_BATCH 64

int session_targets_begin(struct session *session)
{
	session->ends = epoll_create1(EPOLL_CLOEXEC);
	return session->ends < 0 ? error_errno() : 0;
}

size_t session_targets_running(const struct session *session)
{
	size_t running = 0;

	for (size_t i = 0; i < session->count; i++)
		running += !session->targets[i]->ended;
	return running;
}

struct target *target_find(struct session *session, uint32_t tgid)
{
	for (size_t i = session->count; i-- > 0;)
		if ((uint32_t)session->targets[i]->pid == tgid && session->targets[i]->begun &&
		    !session->targets[i]->ended)
			return session->targets[i];
	return NULL;
}

int target_new(struct session *session, pid_t pid, struct target **out)
{
	int err = ARRAY_RESERVE(NULL, session, targets, count, target_capacity, 1);
	struct epoll_event event = {.events = EPOLLIN};
	struct target *target = err ? NULL : calloc(1, sizeof(*target));

	if (!target)
		return -ENOMEM;
	target->pid = pid;
	session->targets[session->count++] = target;
	/* The pidfd first: it keeps naming this process if its pid is reused. A thread has none. */
	target->pidfd = syscall(SYS_pidfd_open, pid, 0);
	event.data.ptr = target;
	if (target->pidfd >= 0 && epoll_ctl(session->ends, EPOLL_CTL_ADD, target->pidfd, &event)) {
		err = error_errno();
		target_abandon(session, target);
		return error_set(err, "its end cannot be watched");
	}
	*out = target;
	return 0;
}

int target_begin(struct session *session, struct target *target, const struct event_target *record)
{
	int err =
		session_feed(session, record, sizeof(*record))
			?: trace_process_find(session->trace, record->header.tgid, &target->index);

	if (err)
		return err;
	target->announced = *record;
	target->begun = 1;
	return 0;
}

uint32_t target_mode_flags(const struct target *target)
{
	const struct python_offsets *offsets = target->runtime.offsets;

	return (target->layers & 1u << EVENT_LAYER_PYTHON ? EVENT_MODE_PYTHON : 0) |
	       (target->layers & 1u << EVENT_LAYER_NATIVE ? EVENT_MODE_NATIVE : 0) |
	       (target->layers & 1u << EVENT_LAYER_MMAP ? EVENT_MODE_MAPPED : 0) |
	       (target->layers & 1u << EVENT_LAYER_PAGES ? EVENT_MODE_PAGES : 0) |
	       (target->large_blocks ? EVENT_MODE_LARGE : 0) |
	       (target->large_windowed ? EVENT_MODE_LARGE_WINDOWS : 0) |
	       (target->reuse_unseen ? EVENT_MODE_NO_REUSE : 0) |
	       (target->ends_unseen ? EVENT_MODE_NO_ENDS : 0) |
	       (offsets && offsets->free_threaded.heap_bytes ? EVENT_MODE_MIMALLOC : 0);
}

int target_announce(struct session *session, struct target *target, const char *name, pid_t ns_pid,
		    int from_start, uint64_t time_ns)
{
	struct event_target record = {
		.header = RECORD_HEADER(EVENT_PROCESS, record, time_ns, target->pid),
		.python_version = target->runtime.version_hex,
		.nframe = session_nframe(&session->opts, target->layers),
		.realtime_ns = clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_MONOTONIC) - time_ns),
		.from_start = from_start,
		.mode = target->mode | target_mode_flags(target) |
			(session->opts.label.source ? EVENT_MODE_TASKS : 0) |
			(target->tasks_unreported ? EVENT_MODE_TASKS_UNREPORTED : 0) |
			(session->opts.hash_labels ? EVENT_MODE_LABELS_HASHED : 0) |
			(session->opts.by_thread ? EVENT_MODE_THREADS : 0),
		.sample_bytes = session->opts.sample_bytes,
		.age_ns = process_age_ns(target->pid),
		.budget_permille = (uint32_t)(session->opts.overhead * 1000 + 0.5),
		.ns_pid = ns_pid,
	};
	const struct label_spec *label = &session->opts.label;
	struct process_service service;
	struct process_info info;

	memcpy(record.label, label->text, sizeof(record.label));

	if (!process_stat_read(target->pid, &info) && !process_boot_read(record.boot))
		record.start_ticks = info.start_ticks;
	process_service_read(target->pid, target->runtime.space, &service);
	_Static_assert(sizeof(service.name) == sizeof(record.service), "service");
	memcpy(record.service, service.name, sizeof(record.service));
	memcpy(record.version, service.version, sizeof(record.version));
	memcpy(record.name, name, strnlen(name, sizeof(record.name) - 1));
	container_names_find(&session->container_names, target->pid, record.container,
			     sizeof(record.container));
	return target_begin(session, target, &record);
}

void target_planned(struct target *target, const struct plan_target *plans)
{
	const struct plan *plan = &plans->python;

	target->mode = plan->mode;
	target->layers = plans->layers;
	target->large_blocks = plan->large_blocks;
	target->large_windowed = 0;
	target->pools_off = 0;
	target->reuse_unseen = plan->reuse_unseen;
	target->ends_unseen = plan->ends_unseen;
	target->runtime.target.layers = plans->layers;
	target->runtime.target.partial = !plan->complete;
	if (plan->memory)
		target->runtime.target.program_break = plan->memory->program_break;
}

struct plan_target_opts target_plan_opts(const struct session *session, const struct target *target)
{
	struct plan_target_opts opts = session->opts.plan;

	if (target->layers == 1u << EVENT_LAYER_MMAP)
		opts.layers = target->layers;
	return opts;
}

/* For a process whose own record of its end was lost, or was never made. */
void target_end(struct session *session, struct target *target, uint32_t type)
{
	struct event_process record = {
		.header = RECORD_HEADER(type, record, 0, target->pid),
	};

	target_symbols_name(session, target);
	record.header.time_ns = clock_ns(CLOCK_MONOTONIC);
	session_feed(session, &record, sizeof(record));
	target->ended = 1;
}

void target_forget(struct session *session, const struct target *target)
{
	attach_forget(session->attach, (uint32_t)target->pid, target->runtime.target.space_id);
}

void discard_feed(struct session *session, uint32_t pid)
{
	struct event_mark record = {
		.header = RECORD_HEADER(EVENT_DISCARD, record, clock_ns(CLOCK_MONOTONIC), pid),
	};

	session_feed(session, &record, sizeof(record));
}

void target_discard(struct session *session, struct target *target)
{
	target_forget(session, target);
	discard_feed(session, (uint32_t)target->pid);
	target->ended = 1;
}

static void target_free(struct session *session, struct target *target)
{
	uint64_t swapped = space_missed(target->runtime.space).swapped;

	if (target->pidfd >= 0) {
		/*
		 * A process that writes a snapshot may have inherited the descriptor, and closing
		 * it here would not remove it from the epoll set.
		 */
		epoll_ctl(session->ends, EPOLL_CTL_DEL, target->pidfd, NULL);
		close(target->pidfd);
	}
	session->inherited -= target->inherited;
	session->bytes_swapped += swapped;
	session->processes_swapped += swapped > 0;
	target_symbols_end(target);
	target_windows_free(target);
	python_runtime_close(&target->runtime);
	free(target);
}

/*
 * Removes its private probes, once: later probes in a process with its pid are another target's.
 * wait: the process goes on, with another program that is about to have probes at the same places.
 * While both are there, each hit is reported twice, and requests lose their returns.
 */
static void target_release(struct session *session, struct target *target, int wait)
{
	if (!target->released)
		attach_drop(session->attach, target->pid, ATTACH_ALL, wait);
	target->released = 1;
}

void session_targets_release(struct session *session, pid_t pid)
{
	for (size_t i = 0; i < session->count; i++)
		if (session->targets[i]->pid == pid && session->targets[i]->ended)
			target_release(session, session->targets[i], 1);
}

void target_abandon(struct session *session, struct target *target)
{
	size_t at = session->count;

	if (target->begun) {
		/* A drain may have ended it, and begun another target with its pid. */
		if (!target->ended)
			target_discard(session, target);
		return; /* session_targets_bury() frees it */
	}
	while (at && session->targets[at - 1] != target)
		at--;
	memmove(&session->targets[at - 1], &session->targets[at],
		(session->count - at) * sizeof(*session->targets));
	session->count--;
	target_release(session, target, 1);
	target_free(session, target);
}

/* Marks at most ENDS_BATCH processes that have ended; the next call reports the others. */
static void ends_mark(struct session *session)
{
	struct epoll_event events[ENDS_BATCH];
	int count = epoll_wait(session->ends, events, ENDS_BATCH, 0);

	for (int i = 0; i < count; i++)
		((struct target *)events[i].data.ptr)->gone = 1;
}

void session_targets_bury(struct session *session)
{
	size_t kept = 0;

	ends_mark(session);
	for (size_t i = 0; i < session->count; i++) {
		struct target *target = session->targets[i];

		if (target->ended || (target->pidfd >= 0 && !target->gone))
			continue;
		/* Its last records are in the ring buffer by now. Draining may append targets. */
		session_pull(session);
		if (!target->ended)
			target_end(session, target, EVENT_EXIT);
	}
	/* Nothing is drained from here on: targets can be freed. */
	for (size_t i = 0; i < session->count; i++) {
		struct target *target = session->targets[i];

		if (!target->ended) {
			session->targets[kept++] = target;
			continue;
		}
		target_release(session, target, 0);
		target_free(session, target);
	}
	session->count = kept;
}

void session_targets_free(struct session *session)
{
	for (size_t i = 0; i < session->count; i++)
		target_free(session, session->targets[i]);
	free(session->targets);
	if (session->bytes_swapped)
		log_info("not read, since it is swapped out: %llu KiB of %zu processes (blocks "
			 "there, or their types, are not known)",
			 (unsigned long long)session->bytes_swapped >> 10,
			 session->processes_swapped);
	if (session->ends >= 0)
		close(session->ends);
}
