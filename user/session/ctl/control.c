/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ctl/control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "report/report.h"
#include "session/ctl/client.h"
#include "session/ctl/saver.h"
#include "session/ctl/session_socket.h"
#include "session/ctl/sums.h"
#include "trace/trace.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/json.h"

/* --- answer ----------------------------------------------------------------------------------- */

/* Answers about a traced process: one JSON object without a line end. Keys are only ever added. */

/*
 * Writes is_tracing, traceback_limit, traced_memory {size, peak} and tracer_memory (bytes, of all
 * processes of the session), as tracemalloc's functions of these names define them; uptime (seconds
 * since its tracing began), live_blocks, lost_events, session (the tracer's pid) and the metadata
 * of a report; longest_pause_ns, the longest time for which a request has delayed the handling of
 * events; with a limit for the machine, machine {limit, took, budget_part}, as session_machine().
 * running: the process still exists.
 */
static void answer_status(FILE *out, const struct trace *trace, size_t process, int running,
			  const struct sums_facts *facts, uint64_t longest_pause_ns)
{
	const struct trace_process *info = trace_process_at(trace, process);
	const struct trace_table table = trace_live(trace, process, trace_first_layer(info));
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	struct snapshot now = {0};

	trace_meta(trace, process, &now.meta);
	if (!running)
		now_ns = info->end_ns;
	fprintf(out,
		"{\"is_tracing\": %s, \"session\": %d, \"uptime\": %.3f, \"traceback_limit\": "
		"%" PRIu32 ", \"traced_memory\": {\"size\": %" PRIu64 ", \"peak\": %" PRIu64
		"}, \"tracer_memory\": %zu, \"live_blocks\": %" PRIu64 ", \"lost_events\": %" PRIu64
		", \"longest_pause_ns\": %" PRIu64 ", ",
		running ? "true" : "false", getpid(), (double)(now_ns - info->start_ns) / 1e9,
		info->nframe, table.live_bytes, table.peak_bytes, trace_memory(trace),
		table.live_blocks, snapshot_lost_events(&now), longest_pause_ns);
	if (facts->machine_limit > 0)
		fprintf(out,
			"\"machine\": {\"limit\": %.6f, \"took\": %.6f, \"budget_part\": %.6f}, ",
			facts->machine_limit, facts->machine_took, facts->machine_part);
	report_json_meta(&now, out);
	putc('}', out);
}

static void frame_write(FILE *out, const struct strings *strings, const struct trace_frame *frame)
{
	fputs("{\"filename\": ", out);
	json_quote(out, strings_get(strings, frame->filename));
	fprintf(out, ", \"lineno\": %" PRIu32 ", \"function\": ", frame->line);
	json_quote(out, strings_get(strings, frame->function));
	if (frame->native)
		fputs(", \"kind\": \"native\"", out);
	putc('}', out);
}

/*
 * Writes the block that contains address, as tracemalloc.get_object_traceback(): {"block":
 * {address, offset, size, domain, rounded}, "total_nframe", "total_nframe_exact", "traceback":
 * [{filename, lineno, function}]}, most recent frame first; {"block": null} if no block contains
 * it.
 */
static void answer_lookup(FILE *out, struct trace *trace, size_t process, uint64_t address)
{
	enum event_layer layer = trace_first_layer(trace_process_at(trace, process));
	const struct block *block = trace_block_containing(trace, process, layer, address);
	struct trace_traceback traceback;

	fprintf(out, "{\"address\": %" PRIu64 ", \"block\": ", address);
	if (!block) {
		fputs("null}", out);
		return;
	}
	traceback = trace_traceback_at(trace, process, block->stack);
	fprintf(out,
		"{\"address\": %" PRIu64 ", \"offset\": %" PRIu64 ", \"size\": %" PRIu64
		", \"domain\": %" PRIu32 ", \"rounded\": %s}, \"total_nframe\": %" PRIu32
		", \"total_nframe_exact\": %s, \"traceback\": [",
		block->address, address - block->address, (uint64_t)block->bytes, block->domain,
		block->rounded ? "true" : "false", traceback.total,
		traceback.total > traceback.nframe ? "false" : "true");
	for (uint32_t i = 0; i < traceback.nframe; i++) {
		fputs(i ? ", " : "", out);
		frame_write(out, trace_strings(trace, process), &traceback.frames[i]);
	}
	fputs("]}", out);
}

/* --- control ---------------------------------------------------------------------------------- */

#define SAVERS 4u /* concurrent; each may hold a copy of the tables */

struct control {
	struct control_opts opts;
	int listener;
	int stop;
	/* start of the current request, not including the drain that precedes it */
	uint64_t began_ns;
	uint64_t longest_ns; /* longest delay of event handling by a request */
	size_t turn;         /* the process that REQUEST_SUMS brings up to date next */
	struct client *clients[CONTROL_CLIENTS];
};

int control_new(struct control **out, const struct control_opts *opts)
{
	struct control *control = calloc(1, sizeof(*control));

	error_clear();
	if (!control)
		return -ENOMEM;
	control->opts = *opts;
	if (!opts->directory)
		control->opts.directory = SOCKET_DIRECTORY;
	control->listener = session_socket_listen(control->opts.directory, getpid());
	if (control->listener < 0) {
		int err = control->listener;

		free(control);
		return err;
	}
	*out = control;
	return 0;
}

void control_free(struct control *control)
{
	if (!control)
		return;
	session_socket_remove(control->opts.directory, getpid());
	close(control->listener);
	for (size_t i = 0; i < CONTROL_CLIENTS; i++)
		client_free(control->clients[i]);
	free(control);
}

size_t control_poll_fds(const struct control *control, struct pollfd *fds)
{
	size_t count = 0;

	fds[count++] = (struct pollfd){.fd = control->listener, .events = POLLIN};
	for (size_t i = 0; i < CONTROL_CLIENTS; i++)
		if (control->clients[i])
			count += client_poll_fds(control->clients[i], fds + count);
	return count;
}

int control_stop_wanted(const struct control *control)
{
	return control->stop;
}

/*
 * Finds a slot for a new client: an empty one, or that of the client that has been idle for
 * longest. NULL: all clients are busy.
 */
static struct client **slot_find(struct control *control)
{
	struct client **longest = NULL;

	for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
		struct client **at = &control->clients[i];

		if (!*at)
			return at;
		if (client_idle(*at) &&
		    (!longest || client_since_ns(*at) < client_since_ns(*longest)))
			longest = at;
	}
	if (longest) {
		client_refuse(*longest, "too many clients, and this one was idle for longest");
		client_free(*longest);
		*longest = NULL;
	}
	return longest;
}

static void client_accept(struct control *control)
{
	int fd = accept4(control->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct client *client;
	struct client **slot;
	pid_t pid = 0;

	if (fd < 0)
		return;
	int err = session_socket_peer_check(fd, &pid);
	if (client_new(&client, fd, pid)) {
		close(fd);
		return;
	}
	slot = err ? NULL : slot_find(control);
	if (slot) {
		*slot = client;
		return;
	}
	client_refuse(client, err == -EPERM ? "another user's session" : "too many clients");
	client_free(client);
}

/* The number of processes of the session; *last: the index of one of them. */
static size_t processes_count(const struct control *control, size_t *last)
{
	size_t total = trace_process_count(control->opts.trace), count = 0;

	for (size_t i = 0; i < total; i++)
		if (trace_process_at(control->opts.trace, i)) {
			*last = i;
			count++;
		}
	return count;
}

/* Finds the process of a request. 0; -EINVAL, -ESRCH (with error_set()). */
static int process_of(const struct control *control, const struct request *request, size_t *process)
{
	size_t total = trace_process_count(control->opts.trace), found = total;
	size_t count = request->pid ? 0 : processes_count(control, &found);

	/* The last process with this pid: pids are reused. */
	if (request->pid && trace_process_find(control->opts.trace, request->pid, &found))
		found = total;
	if (found == total)
		return error_set(-ESRCH, "this session does not trace PID %u", request->pid);
	/* Of a snapshot of all, any of them. */
	if (count > 1 && !request->all)
		return error_set(-EINVAL, "\"pid\" is missing: this session traces %zu processes",
				 count);
	*process = found;
	return 0;
}

static size_t savers_count(const struct control *control)
{
	size_t count = 0;

	for (size_t i = 0; i < CONTROL_CLIENTS; i++)
		count += control->clients[i] && client_saves(control->clients[i]);
	return count;
}

/*
 * Brings the process of a request up to date. *process becomes SAVER_ALL or SAVER_RUNNING if the
 * request is for all.
 */
static int refresh(struct control *control, const struct request *request, size_t *process)
{
	/*
	 * A heap walk is not needed for a lookup: an address that is looked up is live, and its
	 * block is the last that was allocated there. Nor for a status, which clients may poll at
	 * any rate; its coverage field gives the time of the last heap walk.
	 */
	int reconcile = request->kind == REQUEST_SNAPSHOT || request->kind == REQUEST_BLOCKS ||
			request->kind == REQUEST_RESET_PEAK;
	const struct control_opts *opts = &control->opts;
	int err = 0;

	if (request->kind == REQUEST_STACKS)
		return 0;
	if (request->kind == REQUEST_SUMS) {
		/*
		 * One drain for all processes. The session reads RSS and walks heaps by itself; the
		 * native names of one process are brought up to date here.
		 */
		size_t count = trace_process_count(opts->trace);

		return count ? opts->refresh(opts->context, control->turn++ % count, 0) : 0;
	}
	if (!request->all)
		return opts->refresh(opts->context, *process, reconcile);
	for (size_t i = 0; !err && i < trace_process_count(opts->trace); i++)
		err = opts->refresh(opts->context, i, reconcile);
	*process = request->running ? SAVER_RUNNING : SAVER_ALL;
	return err;
}

static int save_begin(struct control *control, struct client *client, enum saver_what what,
		      size_t process)
{
	size_t last;

	if (savers_count(control) >= SAVERS)
		return error_set(-EBUSY, "%u snapshots are being written already", SAVERS);
	return client_save(client, control->opts.trace, what, process,
			   processes_count(control, &last));
}

static int mark_put(struct control *control, size_t process, uint32_t type)
{
	if (!control->opts.running(control->opts.context, process))
		return error_set(-ESRCH, "the process has ended");
	return control->opts.mark(control->opts.context, process, type);
}

static struct sums_facts facts_of(const struct control_opts *opts)
{
	struct sums_facts facts = {.cost = -1};

	if (opts->facts)
		opts->facts(opts->context, &facts);
	return facts;
}

/* Writes to the descriptor that came with the request of a live view. */
static int view_answer(struct control *control, struct client *client,
		       const struct request *request, size_t process)
{
	const struct control_opts *opts = &control->opts;
	const struct sums_facts facts = facts_of(opts);
	int fd = client_take_passed(client), err;

	if (fd < 0)
		return fd;
	err = request->kind == REQUEST_SUMS
		      ? sums_write(fd, opts->trace, request, &facts)
		      : stacks_write(fd, opts->trace, process, request->first, request->strings);
	close(fd);
	return err;
}

/* 0: the answer is in out, or is sent when the saver is done; -errno. */
static int request_do(struct control *control, struct client *client, const struct request *request,
		      FILE *out)
{
	const struct control_opts *opts = &control->opts;
	struct sums_facts facts;
	size_t process = 0;
	int err = request->kind == REQUEST_SUMS ? 0 : process_of(control, request, &process);

	if (!err)
		err = refresh(control, request, &process);
	control->began_ns = clock_ns(CLOCK_MONOTONIC);
	if (err)
		return err;
	switch (request->kind) {
	case REQUEST_STATUS:
		facts = facts_of(opts);
		answer_status(out, opts->trace, process, opts->running(opts->context, process),
			      &facts, control->longest_ns);
		return 0;
	case REQUEST_LOOKUP:
		answer_lookup(out, opts->trace, process, request->address);
		return 0;
	case REQUEST_SNAPSHOT:
		return save_begin(control, client, request->ages ? SAVER_AGES : SAVER_SNAPSHOT,
				  process);
	case REQUEST_BLOCKS:
		return save_begin(control, client, SAVER_BLOCKS, process);
	case REQUEST_CLEAR:
		err = mark_put(control, process, EVENT_CLEAR);
		break;
	case REQUEST_RESET_PEAK:
		err = mark_put(control, process, EVENT_RESET_PEAK);
		break;
	case REQUEST_STOP:
		control->stop = 1;
		break;
	case REQUEST_SUMS:
	case REQUEST_STACKS:
		err = view_answer(control, client, request, process);
		break;
	}
	if (!err)
		fputs("{}", out);
	return err;
}

static void request_serve(struct control *control, struct client *client,
			  const struct request *request)
{
	uint64_t elapsed_ns;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	control->began_ns = clock_ns(CLOCK_MONOTONIC);
	int err = out ? request_do(control, client, request, out) : -ENOMEM;

	if (out && fclose(out) && !err)
		err = -ENOMEM;
	if (err)
		client_error(client, error_reason(err));
	else if (size)
		client_answer(client, text, size);
	free(text);
	elapsed_ns = clock_ns(CLOCK_MONOTONIC) - control->began_ns;
	if (elapsed_ns > control->longest_ns)
		control->longest_ns = elapsed_ns;
}

int control_serve(struct control *control)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	int more = 0;

	client_accept(control);
	for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
		struct client *client = control->clients[i];
		struct request request;

		if (!client)
			continue;
		int got = client_next(client, now_ns, &request);
		if (got > 0) {
			request_serve(control, client, &request);
			got = client_flush(client);
			more = 1;
		}
		if (got < 0) {
			client_free(client);
			control->clients[i] = NULL;
		}
	}
	return more;
}
