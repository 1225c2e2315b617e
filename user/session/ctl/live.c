/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ctl/live.h"

#include <time.h>
#include <unistd.h>

#include "session/ctl/session_socket.h"
#include "session/ctl/sums.h"
#include "session/target/collections.h"
#include "util/clock.h"
#include "util/error.h"

static int session_up_to_date(void *context, size_t process, int reconcile)
{
	return session_refresh(context, process, reconcile);
}

static int session_set_mark(void *context, size_t process, uint32_t type)
{
	return session_mark(context, process, type);
}

static int session_runs(void *context, size_t process)
{
	return session_process_running(context, process);
}

static const struct collections *session_collections(const void *context, size_t process,
						     uint32_t pid)
{
	return collections_of(context, process, pid);
}

static void session_facts(void *context, struct sums_facts *out)
{
	uint64_t begin_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	struct session_machine machine;

	session_machine(context, &machine);
	out->cost = session_cost(context);
	out->machine_took = machine.took;
	out->machine_limit = machine.limit;
	out->machine_part = machine.part;
	out->records = session_records(context);
	collections_read(context, false);
	out->collections = session_collections;
	out->context = context;
	out->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
}

void live_begin(struct live *live, struct session *session, const struct live_opts *opts)
{
	const struct control_opts control = {
		.trace = session_trace(session),
		.refresh = session_up_to_date,
		.mark = session_set_mark,
		.running = session_runs,
		.facts = session_facts,
		.context = session,
	};
	char socket[SOCKET_PATH_MAX];
	int err;

	/* may be called again for a command that has not loaded its Python yet */
	if (live->session)
		return;
	live->opts = *opts;
	live->session = session;
	live->next_ns = clock_ns(CLOCK_MONOTONIC) + opts->every_ns;
	err = control_new(&live->control, &control);
	if (!err && !session_socket_path(SOCKET_DIRECTORY, getpid(), socket))
		session_sweep(session, socket); /* otherwise the next session removes it */
	if (err)
		log_info("tracer ctl and the live view cannot reach this session: %s",
			 error_reason(err));
}

size_t live_poll_fds(const struct live *live, struct pollfd *fds)
{
	size_t count = live->control ? control_poll_fds(live->control, fds) : 0;

	if (live->saver)
		fds[count++] = (struct pollfd){.fd = saver_poll_fd(live->saver), .events = POLLIN};
	if (record_poll_fd(&live->record) >= 0)
		fds[count++] =
			(struct pollfd){.fd = record_poll_fd(&live->record), .events = POLLIN};
	return count;
}

static void saver_end(struct live *live)
{
	uint64_t start_ns = saver_start_ns(live->saver),
		 elapsed_ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
	int err = saver_finish(live->saver);

	if (!err)
		err = outfile_rotate(live->saving, live->opts.keep);
	else
		outfile_discard(live->saving);
	live->saver = NULL;
	live->saving = NULL;
	if (err)
		error_print(err, "the next one is tried when it is due", "%s", live->opts.name);
	/*
	 * If writing takes longer than the interval, the next snapshot would be due at once:
	 * writing may take at most half of the time.
	 */
	if (live->next_ns < start_ns + 2 * elapsed_ns)
		live->next_ns = start_ns + 2 * elapsed_ns;
}

static void saver_begin(struct live *live, uint64_t now_ns)
{
	struct trace *trace = session_trace(live->session);
	int err = 0;

	for (size_t i = 0; !err && i < trace_process_count(trace); i++)
		err = session_refresh(live->session, i, 1);
	live->next_ns += live->opts.every_ns;
	if (live->next_ns < now_ns)
		live->next_ns = now_ns + live->opts.every_ns;
	if (!err)
		err = outfile_again(&live->saving, live->opts.file);
	if (!err) {
		err = saver_start(&live->saver, trace, SAVER_SNAPSHOT, SAVER_ALL,
				  outfile_fd(live->saving));
		if (err) {
			outfile_discard(live->saving);
			live->saving = NULL;
		}
	}
	if (err)
		error_print(err, "the next one is tried when it is due", "%s", live->opts.name);
}

int live_step(struct live *live)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);

	if (live->saver) {
		struct pollfd done = {.fd = saver_poll_fd(live->saver), .events = POLLIN};

		if (poll(&done, 1, 0) > 0)
			saver_end(live);
	} else if (live->opts.every_ns && now_ns >= live->next_ns &&
		   !session_snapshot_waits(live->session, live->next_ns)) {
		saver_begin(live, now_ns);
	}
	record_step(&live->record);
	return live->control ? control_serve(live->control) : 0;
}

int live_stop_wanted(const struct live *live)
{
	return live->control && control_stop_wanted(live->control);
}

void live_finish(struct live *live)
{
	if (live->saver)
		saver_end(live);
	record_wait(&live->record);
}

void live_end(struct live *live)
{
	saver_free(live->saver);
	outfile_discard(live->saving);
	record_end(&live->record);
	control_free(live->control);
}
