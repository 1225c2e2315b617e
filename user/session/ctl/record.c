/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ctl/record.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proc/container/memory_headroom.h"
#include "session/target/collections.h"
#include "util/clock.h"
#include "util/error.h"

#define REMEDY "the next one is tried when it is due"

int record_begin(struct record *record, struct session *session, struct outfile *file,
		 const char *name, uint64_t every_ns)
{
	int err;

	if (!file || record->session)
		return 0;
	record->session = session;
	record->file = file;
	record->name = name;
	record->every_ns = every_ns;
	record->begin_ns = record->next_ns = clock_ns(CLOCK_MONOTONIC);
	record->next_ns += every_ns;
	record->recorder.end = sizeof(struct recording_header);
	record->recorder.file = fcntl(outfile_fd(file), F_DUPFD_CLOEXEC, 0);
	record->recorder.last = memfd_create("tracer-last", MFD_CLOEXEC);
	err = record->recorder.file < 0 || record->recorder.last < 0
		      ? error_errno()
		      : recorder_begin(record->recorder.file, clock_ns(CLOCK_REALTIME));
	return err ? error_print(err, NULL, "%s", name) : 0;
}

/* What the cgroups of the processes may still use. */
static uint64_t left_read(struct session *session)
{
	const struct trace *trace = session_trace(session);
	struct memory_headroom *headroom;
	uint64_t left = UINT64_MAX;

	if (memory_headroom_new(&headroom))
		return left;
	for (size_t i = 0; i < trace_process_count(trace); i++)
		if (trace_process_at(trace, i) && session_process_running(session, i))
			memory_headroom_take(headroom, (pid_t)trace_process_at(trace, i)->tgid, 0);
	if (!memory_headroom_left(headroom, &left))
		left = UINT64_MAX;
	memory_headroom_free(headroom);
	return left;
}

/* The file has its first snapshot: it gets its name. 0, -errno. */
static int file_name(struct record *record)
{
	struct outfile *file = record->file;

	record->file = NULL;
	return file ? outfile_commit(file) : 0;
}

/* The snapshot was appended, or not. */
static int appended(struct record *record, int err)
{
	struct recorder *recorder = &record->recorder;
	off_t end = err ? 0 : lseek(recorder->file, 0, SEEK_END);

	if (end < 0)
		err = error_errno();
	record->failed = err != 0;
	if (!err) {
		recorder->end = (uint64_t)end;
		return file_name(record);
	}
	/* A part of it would hide those that follow. */
	if (ftruncate(recorder->file, (off_t)recorder->end) || ftruncate(recorder->last, 0))
		record->session = NULL;
	return err;
}

static void saver_end(struct record *record)
{
	uint64_t start_ns = saver_start_ns(record->saver),
		 elapsed_ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
	int err = appended(record, saver_finish(record->saver));

	record->saver = NULL;
	if (err)
		error_print(err, REMEDY, "%s", record->name);
	/* Appending may take at most half of the time. */
	if (record->next_ns < start_ns + 2 * elapsed_ns)
		record->next_ns = start_ns + 2 * elapsed_ns;
}

static void saver_begin(struct record *record, uint64_t now_ns)
{
	struct trace *trace = session_trace(record->session);
	int err = 0;

	record->next_ns += record->every_ns;
	if (record->next_ns < now_ns)
		record->next_ns = now_ns + record->every_ns;
	if (!trace_process_count(trace))
		return;
	for (size_t i = 0; !err && i < trace_process_count(trace); i++)
		err = session_refresh(record->session, i, 1);
	collections_read(record->session, true);
	record->recorder.since_ns = clock_ns(CLOCK_MONOTONIC) - record->begin_ns;
	record->recorder.memory_left = left_read(record->session);
	if (!err)
		err = saver_record(&record->saver, trace, &record->recorder);
	if (err)
		error_print(err, REMEDY, "%s", record->name);
}

void record_step(struct record *record)
{
	uint64_t now_ns;

	if (!record->session)
		return;
	now_ns = clock_ns(CLOCK_MONOTONIC);
	if (record->saver) {
		struct pollfd done = {.fd = saver_poll_fd(record->saver), .events = POLLIN};

		if (poll(&done, 1, 0) > 0)
			saver_end(record);
	} else if (now_ns >= record->next_ns &&
		   !session_snapshot_waits(record->session, record->next_ns)) {
		saver_begin(record, now_ns);
	}
}

int record_poll_fd(const struct record *record)
{
	return record->saver ? saver_poll_fd(record->saver) : -1;
}

void record_wait(struct record *record)
{
	if (record->saver)
		saver_end(record);
}

int record_last(struct record *record, const struct snapshot *snapshot)
{
	int err;

	if (!record->session)
		return 0;
	record_wait(record);
	record->recorder.since_ns = clock_ns(CLOCK_MONOTONIC) - record->begin_ns;
	record->recorder.memory_left = left_read(record->session);
	err = appended(record, recorder_append(&record->recorder, snapshot));
	if (!err && fsync(record->recorder.file))
		err = error_errno();
	return err ? error_print(err, NULL, "%s", record->name) : 0;
}

void record_end(struct record *record)
{
	if (!record->session)
		return;
	saver_free(record->saver);
	outfile_discard(record->file);
	close(record->recorder.file);
	close(record->recorder.last);
	*record = (struct record){0};
}
