/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/session_view.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "session/ctl/ask.h"
#include "session/ctl/session_socket.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"

#define ROUND_NS   5000000000ull /* until the session is taken to hang */
#define NAMES_NS   1000000000ull /* after that, names are left to the next round */
#define ANSWER_MAX (1ull << 31)

static int model_begin(struct session_view *view)
{
	int err = watch_model_begin(&view->model);

	view->groups = (struct watch_groups){.by = WATCH_LINE, .sort = WATCH_SIZE};
	view->groups.keys.seed = view->model.pids.seed;
	return err;
}

static void model_end(struct session_view *view)
{
	watch_groups_free(&view->groups);
	watch_model_end(&view->model);
}

int session_view_begin(struct session_view *view, pid_t session)
{
	*view = (struct session_view){.session = session, .fd = -1};
	view->memory = memfd_create("tracer-web", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (view->memory < 0)
		return error_errno();
	return model_begin(view);
}

void session_view_end(struct session_view *view)
{
	model_end(view);
	descriptor_close(view->fd);
	descriptor_close(view->memory);
	buffer_free(&view->answer);
	buffer_free(&view->data);
}

/* The round is over. err: its answer was none, so the next one begins with a connection. */
static int round_end(struct session_view *view, int err)
{
	view->asking = false;
	view->answers = !err;
	if (!err)
		return 1;
	view->errors++;
	descriptor_close(view->fd);
	view->fd = -1;
	model_end(view);
	if (model_begin(view))
		view->session = 0;
	return 1;
}

static int request_begin(struct session_view *view, const struct request *request)
{
	view->asked = request->kind;
	view->asking = true;
	return ask_begin(view->fd, request, view->memory, &view->answer);
}

int session_view_round(struct session_view *view)
{
	const struct request request = {.kind = REQUEST_SUMS, .since = view->model.since};

	view->begun_ns = clock_ns(CLOCK_MONOTONIC);
	view->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	view->theirs_ns = 0;
	if (!view->session)
		return round_end(view, 0);
	if (view->fd < 0)
		view->fd = session_socket_connect(SOCKET_DIRECTORY, view->session);
	if (view->fd < 0)
		return round_end(view, view->fd);
	int err = request_begin(view, &request);
	return err ? round_end(view, err) : 0;
}

/* Takes an answer. 0, -errno. */
static int answer_take(struct session_view *view)
{
	bool sums = view->asked == REQUEST_SUMS;
	uint64_t theirs;
	int err;

	view->asking = false;
	/* A process has ended since the sums: the next ones do not have it. */
	if (!strncmp((char *)view->answer.data, "{\"error\"", 8))
		return sums ? -EPROTO : 0;
	err = ask_memory_read(view->memory, ANSWER_MAX, &view->data);
	if (err)
		return err;
	if (view->data.size >= 3 * sizeof(theirs)) {
		memcpy(&theirs,
		       view->data.data + (sums ? offsetof(struct sums_header, cpu_ns)
					       : offsetof(struct stacks_header, cpu_ns)),
		       sizeof(theirs));
		view->theirs_ns += theirs;
	}
	return sums ? watch_model_sums(&view->model, view->data.data, view->data.size)
		    : watch_model_stacks(&view->model, view->data.data, view->data.size);
}

int session_view_step(struct session_view *view)
{
	struct request request;
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	int got = ask_step(view->fd, &view->answer);

	if (!got)
		return now > view->begun_ns + ROUND_NS ? round_end(view, -ETIMEDOUT) : 0;
	int err = got < 0 ? got : answer_take(view);
	if (err)
		return round_end(view, err);
	if (now > view->begun_ns + NAMES_NS || !watch_model_missing(&view->model, now, &request))
		return round_end(view, 0);
	err = request_begin(view, &request);
	return err ? round_end(view, err) : 0;
}

int session_view_wait_ms(const struct session_view *view)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC), end = view->begun_ns + ROUND_NS;

	return now < end ? (int)((end - now) / 1000000) + 1 : 0;
}

uint64_t session_view_cost_ns(const struct session_view *view)
{
	return view->theirs_ns + clock_ns(CLOCK_PROCESS_CPUTIME_ID) - view->cpu_ns;
}
