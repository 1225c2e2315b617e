/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/profile.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/child.h"
#include "report/export/exporter.h"
#include "report/pprof/pprof.h"
#include "report/pprof/pprof_merge.h"
#include "session/ctl/ask.h"
#include "session/ctl/session_socket.h"
#include "snapshot/frames/view.h"
#include "util/cleanup.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/message.h"

#define SNAPSHOT_MS  60000
#define SNAPSHOT_MAX (256u << 20)

/* --- the process ------------------------------------------------------------------------------ */

struct profile_work {
	const struct profile_opts *opts;
	int session, memory; /* memory: of the session's answers, then of the first result */
	int others[PROFILE_OUTS - 1]; /* of the other results */
	struct buffer first[PROFILE_PROCESSES];
	struct buffer answer, now, out, converted[PROFILE_OUTS];
};

static int memory_empty(const struct profile_work *work)
{
	return ftruncate(work->memory, 0) || lseek(work->memory, 0, SEEK_SET) < 0 ? error_errno()
										  : 0;
}

/*
 * A snapshot of a process, or of all: those that run. A difference is of all that there were, since
 * one that ends meanwhile would be less than nothing in it. 0; -ESRCH: the session does not trace
 * it any more; -errno (error_set).
 */
static int snapshot_ask(struct profile_work *work, uint32_t pid, struct buffer *out)
{
	const struct request request = {.kind = REQUEST_SNAPSHOT,
					.pid = pid,
					.all = !pid,
					.running = !pid && !work->opts->seconds};
	int err = memory_empty(work);

	err = err ?: ask(work->session, &request, work->memory, SNAPSHOT_MS, &work->answer);
	if (!err && !strncmp((char *)work->answer.data, "{\"error\"", 8))
		return error_set(-ESRCH, "the session has no snapshot: %.150s",
				 (char *)work->answer.data);
	return err ?: ask_memory_read(work->memory, SNAPSHOT_MAX, out);
}

static const char *type_of(const struct profile_opts *opts)
{
	return opts->kind == PROFILE_ALLOCS ? "alloc_space" : "inuse_space";
}

/* One process or all of them, as it is now: with all that a snapshot has. */
static int whole_make(struct profile_work *work)
{
	int err = snapshot_ask(work, work->opts->pid_count ? work->opts->pids[0] : 0, &work->now);

	if (!err && work->opts->kind == PROFILE_ALLOCS)
		return pprof_show_first(&work->now, type_of(work->opts), &work->out);
	return err ?: buffer_append(&work->out, work->now.data, work->now.size);
}

static int page_write(const struct profile_work *work, const struct snapshot *snapshot)
{
	const struct view_choice view = {0};
	struct export_opts opts = {0};
	struct outfile *file = NULL;
	struct shown shown = {0};
	char name[32];
	int err = view_apply(&view, snapshot, &shown)
			  ?: outfile_on(&file, work->memory, "the report");

	snprintf(name, sizeof(name), "PID %u", work->opts->pids[0]);
	opts.name = name;
	opts.shown = &shown.snapshot;
	err = err ?: exporter_write(&export_html, &shown.snapshot, NULL, &opts, file);
	err = outfile_end(file, err);
	shown_free(&shown);
	return err;
}

/* The page is written to the memory file. */
static int report_make(struct profile_work *work)
{
	struct snapshot *snapshot = NULL;
	int err = snapshot_ask(work, work->opts->pids[0], &work->now) ?: memory_empty(work);
	struct infile file = infile_memory(work->now.data, work->now.size);

	err = err ?: pprof_read(&file, &snapshot) ?: page_write(work, snapshot);
	snapshot_free(snapshot);
	return err;
}

/*
 * The sum of several processes, or the difference of two times. A process that has ended meanwhile
 * counts as if it was not there.
 */
static int sum_make(struct profile_work *work)
{
	const struct profile_opts *opts = work->opts;
	size_t count = opts->pid_count ?: 1, added = 0;
	_cleanup_(pprof_merge_freep) struct pprof_merge *merge = NULL;
	int err = pprof_merge_new(&merge), last = -ESRCH;

	for (size_t i = 0; !err && opts->seconds && i < count; i++) {
		err = snapshot_ask(work, opts->pids[i], &work->first[i]);
		if (err == -ESRCH)
			err = 0;
	}
	if (!err && opts->seconds)
		poll(NULL, 0, (int)opts->seconds * 1000);
	for (size_t i = 0; !err && i < count; i++) {
		if (opts->seconds && !work->first[i].size)
			continue;
		last = snapshot_ask(work, opts->pids[i], &work->now);
		/* One that has ended counts as if it was not there. */
		if (last == -ESRCH) {
			work->first[i].size = 0;
			continue;
		}
		added++;
		err = last ?: pprof_merge_add(merge, &work->now, 1);
	}
	for (size_t i = 0; !err && i < count; i++)
		if (work->first[i].size)
			err = pprof_merge_add(merge, &work->first[i], -1);
	if (!err && !added)
		err = last;
	return err
		       ?: pprof_merge_write(merge, type_of(opts), opts->seconds * 1000000000ull,
					    &work->out);
}

static int memory_new(void)
{
	return memfd_create("tracer-profile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static size_t out_count(const struct profile_opts *opts)
{
	return opts->convert ? opts->outs : 1;
}

/* The memory files then have it. */
static int profile_make(struct profile_work *work)
{
	const struct profile_opts *opts = work->opts;

	if (opts->kind == PROFILE_REPORT)
		return report_make(work);
	const struct buffer *outs = opts->convert ? work->converted : &work->out;
	int err = opts->pid_count > 1 || opts->seconds ? sum_make(work) : whole_make(work);
	if (!err && opts->convert)
		err = opts->convert(opts->convert_context, &work->out, work->converted);
	err = err ?: memory_empty(work) ?: descriptor_write(work->memory, outs->data, outs->size);
	for (size_t i = 1; !err && i < out_count(opts); i++) {
		work->others[i - 1] = memory_new();
		err = work->others[i - 1] < 0
			      ? error_errno()
			      : descriptor_write(work->others[i - 1], outs[i].data, outs[i].size);
	}
	return err;
}

static void end_of(int err, struct profile_end *end)
{
	end->status = err == 0 ? 200 : err == -ESRCH || err == -ENOENT ? 404 : 500;
	if (err)
		snprintf(end->text, sizeof(end->text), "%s", error_reason(err));
}

_Noreturn static void profile_run(void *context, int socket, pid_t parent)
{
	struct profile_work work = {.opts = context, .session = -1, .memory = -1};
	const struct profile_opts *opts = work.opts;
	struct profile_end end = {0};
	struct iovec part = {&end, sizeof(end)};
	int made[PROFILE_OUTS];
	int err = child_confine("tracer-profile", socket, parent);

	work.memory = err ? -1 : memory_new();
	if (!err && work.memory < 0)
		err = error_errno();
	if (!err)
		work.session = session_socket_connect(SOCKET_DIRECTORY, opts->session);
	if (!err && work.session < 0)
		err = error_set(work.session, "the session does not answer");
	err = err ?: profile_make(&work);
	end_of(err, &end);
	memcpy(made + 1, work.others, sizeof(work.others));
	made[0] = work.memory;
	message_send(CHILD_SOCKET, &part, 1, made, err ? 0 : out_count(opts));
	_exit(0);
}

/* --- the server ------------------------------------------------------------------------------- */

int profile_begin(struct profile *profile, const struct profile_opts *opts)
{
	int socket = message_child(&profile->child, SOCK_SEQPACKET, profile_run, (void *)opts);

	if (socket < 0)
		return socket;
	profile->socket = socket;
	return 0;
}

void profile_finish(struct profile *profile, struct profile_end *end, struct buffer *outs,
		    size_t count)
{
	int memories[PROFILE_OUTS] = {-1, -1};
	ssize_t got =
		message_receive(profile->socket, end, sizeof(*end), memories, PROFILE_OUTS, NULL);

	if (got != sizeof(*end))
		*end = (struct profile_end){500, "the process that makes profiles has failed"};
	end->text[sizeof(end->text) - 1] = '\0';
	for (size_t i = 0; i < count && end->status == 200; i++)
		if (memories[i] < 0 || ask_memory_read(memories[i], SNAPSHOT_MAX, &outs[i]))
			*end = (struct profile_end){
				500, "the profile could not be read: it is too large"};
	for (size_t i = 0; i < PROFILE_OUTS; i++)
		descriptor_close(memories[i]);
	profile_kill(profile);
}

void profile_kill(struct profile *profile)
{
	if (profile->socket < 0)
		return;
	kill(profile->child, SIGKILL);
	waitpid(profile->child, NULL, 0);
	close(profile->socket);
	profile->socket = -1;
}
