/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child keeps only its output files and the result pipe. It closes the probes and the target's
 * descriptors at once, so that they end with the session. It is killed when the session ends.
 */
#include "session/ctl/saver.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/priority.h"
#include "report/pprof/pprof.h"
#include "snapshot/ages.h"
#include "snapshot/snapshot.h"
#include "trace/blocks/block_lines.h"
#include "trace/blocks/blocks.h"
#include "trace/trace.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/outfile.h"
#include "util/sorted.h"

/* --- blocks save ------------------------------------------------------------------------------ */

/* Writes which line allocated each live block of a process: what saver.h's child does. */

struct saving {
	struct trace *trace;
	size_t process;
	FILE *out;
	struct id_map line_of;  /* by stack */
	struct id_map stack_of; /* the same */
	struct id_map lines;    /* by file name and line */
	struct id_map frames;   /* by line and function */
	struct id_map stacks;   /* by caller and frame */
};

/* The number that a map has for two others. 1: it is a new one; 0; -ENOMEM. */
static int number_find(struct id_map *map, uint32_t high, uint32_t low, uint32_t *number)
{
	uint64_t key = (uint64_t)high << 32 | low;

	*number = id_map_find(map, key);
	if (*number != ID_MAP_NONE)
		return 0;
	*number = (uint32_t)map->count;
	return id_map_put(map, key, *number) ?: 1;
}

/* The numbers of a frame and of its line, which are written when they are new. 0, -ENOMEM. */
static int frame_find(struct saving *saving, const struct trace_frame *frame, uint32_t *line,
		      uint32_t *number)
{
	const struct strings *strings = trace_strings(saving->trace, saving->process);
	int found = number_find(&saving->lines, frame->filename, frame->line, line);

	if (found < 0)
		return found;
	if (found)
		block_lines_line(saving->out, *line, strings_get(strings, frame->filename),
				 frame->line);
	found = number_find(&saving->frames, *line, frame->function, number);
	if (found > 0)
		block_lines_frame(saving->out, *number, *line,
				  strings_get(strings, frame->function));
	return found < 0 ? found : 0;
}

/* Writes what is new of a stack, its outermost frame first. 0, -ENOMEM. */
static int stack_write(struct saving *saving, uint32_t stack, uint32_t *line, uint32_t *number)
{
	struct trace_traceback traceback =
		trace_traceback_at(saving->trace, saving->process, stack);
	uint32_t caller = ID_MAP_NONE, frame;
	int err = 0;

	for (uint32_t i = traceback.nframe; i-- && !err;) {
		err = frame_find(saving, &traceback.frames[i], line, &frame)
			      ?: number_find(&saving->stacks, caller, frame, number);
		if (err > 0) {
			block_lines_stack(saving->out, *number,
					  caller == ID_MAP_NONE ? *number : caller, frame);
			err = 0;
		}
		caller = *number;
	}
	return err;
}

/* The numbers of a stack of the trace, and of the line that it ends in. 0, -ENOMEM. */
static int stack_find(struct saving *saving, uint32_t stack, uint32_t *line, uint32_t *number)
{
	int err;

	*line = id_map_find(&saving->line_of, stack);
	*number = id_map_find(&saving->stack_of, stack);
	if (*line != ID_MAP_NONE && *number != ID_MAP_NONE)
		return 0;
	err = stack_write(saving, stack, line, number);
	return err ?: id_map_put(&saving->line_of, stack, *line)
		      ?: id_map_put(&saving->stack_of, stack, *number);
}

#define WHOLE 0.99 /* of the new blocks that the last heap walk has found */

/* Does the table have each block that was allocated since the trace began, and lives? */
static bool is_whole(const struct trace_process *info, const struct snapshot *now)
{
	const struct snapshot_meta *meta = &now->meta;
	const struct snapshot_coverage *coverage = &meta->coverage;

	if (meta->coverage_known &&
	    (double)coverage->seen_blocks < WHOLE * (double)coverage->new_blocks)
		return false;
	return (info->mode == EVENT_MODE_EXACT || info->mode == EVENT_MODE_CENSUS) &&
	       !meta->sample_bytes && !meta->self_sampled && !meta->large_skipped &&
	       !meta->blocks_dropped && !snapshot_lost_events(now);
}

static void time_write(struct saving *saving)
{
	struct snapshot now = {0};

	trace_meta(saving->trace, saving->process, &now.meta);
	block_lines_time(saving->out, now.meta.taken_realtime_ns / AGE_UNIT_NS ?: 1,
			 trace_age_ns(saving->trace, saving->process, NULL) / AGE_UNIT_NS,
			 is_whole(trace_process_at(saving->trace, saving->process), &now));
}

static uint32_t age_of(const struct saving *saving, const struct block *block)
{
	uint64_t ms = trace_age_ns(saving->trace, saving->process, block) / AGE_UNIT_NS;

	return ms ? (uint32_t)lesser(ms, AGE_BEFORE - 1) : 1;
}

static int blocks_write(struct saving *saving)
{
	const struct trace_process *process = trace_process_at(saving->trace, saving->process);
	const struct blocks *blocks =
		trace_blocks(saving->trace, saving->process, trace_first_layer(process));
	const struct block *block;
	struct block_line out;
	int err = 0;

	block_lines_head(saving->out, process->tgid);
	time_write(saving);
	for (size_t cursor = 0; !err && blocks && (block = blocks_next(blocks, &cursor));) {
		out = (struct block_line){.address = block->address,
					  .bytes = block->bytes,
					  .age = age_of(saving, block)};
		err = stack_find(saving, block->stack, &out.line, &out.stack);
		if (!err)
			block_lines_block(saving->out, &out);
	}
	return err;
}

/*
 * Writes a file of trace/blocks/block_lines.h to fd, of the process's first layer. 0; -ENOTSUP: the
 * mode of tracing does not know single blocks (error_set); -ENOMEM; -errno.
 */
static int blocks_save(struct trace *trace, size_t process, int fd)
{
	struct saving saving = {.trace = trace, .process = process};
	const struct trace_process *info = trace_process_at(trace, process);
	int copy, err;

	if (info->mode == EVENT_MODE_GROWTH)
		return error_set(-ENOTSUP, "in growth mode pools are traced, not single blocks");
	copy = dup(fd);
	saving.out = copy < 0 ? NULL : fdopen(copy, "w");
	if (!saving.out) {
		err = error_errno();
		if (copy >= 0)
			close(copy);
		return err;
	}
	err = blocks_write(&saving);
	if (ferror(saving.out) && !err)
		err = -EIO;
	if (fclose(saving.out) && !err)
		err = error_errno();
	id_map_free(&saving.line_of);
	id_map_free(&saving.stack_of);
	id_map_free(&saving.frames);
	id_map_free(&saving.stacks);
	id_map_free(&saving.lines);
	return err;
}

/* --- saver ------------------------------------------------------------------------------------ */

#define REASON_BYTES 256
#define FDS_MAX      2
#define FD_FIRST     3
#define FD_MOVED     16

struct saver {
	pid_t pid;
	int pipe;
	uint64_t start_ns;
};

/* Sent by the child on failure; nothing is sent on success. */
struct saver_end {
	int err;
	char reason[REASON_BYTES];
};

/* What a child is to write, and to which descriptors. */
struct saver_job {
	struct trace *trace;
	enum saver_what what;
	size_t process;
	struct recorder recorder; /* SAVER_RECORD */
	int fds[FDS_MAX];
	int fd_count;
};

static int profile_save(const struct snapshot *snapshot, int fd)
{
	struct outfile *file;
	int err = outfile_on(&file, fd, "the snapshot's file");

	return err ?: pprof_save(snapshot, file);
}

static int snapshot_save(const struct saver_job *job, const int *fds)
{
	struct recorder recorder = job->recorder;
	struct snapshot *snapshot;
	int err;

	if (job->what == SAVER_AGES)
		trace_ages(job->trace);
	err = job->process == SAVER_ALL ? trace_snapshot_all(job->trace, 1, &snapshot)
	      : job->process == SAVER_RUNNING
		      ? trace_snapshot_running(job->trace, &snapshot)
		      : trace_snapshot(job->trace, job->process, 1, &snapshot);

	/* Free the child's copy. Until now, pages that the session has modified exist twice. */
	trace_free(job->trace);
	if (err)
		return err;
	recorder.file = fds[0];
	recorder.last = fds[1];
	err = job->what == SAVER_RECORD ? recorder_append(&recorder, snapshot)
					: profile_save(snapshot, fds[0]);
	/*
	 * The session renames the file afterwards without waiting for the disk. A pipe cannot be
	 * synced.
	 */
	if (!err && fsync(fds[0]) && errno != EINVAL && errno != EROFS)
		err = error_errno();
	return err;
}

/*
 * Closes everything but the job's descriptors, which become those from FD_FIRST on, and the result
 * pipe, the one after them. Returns the latter, or -errno.
 */
static int descriptors_keep(const struct saver_job *job, int *fds, int out)
{
	int moved[FDS_MAX + 1], count = job->fd_count + 1;

	/* All move to higher numbers first, so that dup2() cannot overwrite one of them. */
	for (int i = 0; i < count; i++) {
		moved[i] = fcntl(i < job->fd_count ? job->fds[i] : out, F_DUPFD, FD_MOVED);
		if (moved[i] < 0)
			return error_errno();
	}
	for (int i = 0; i < count; i++) {
		if (dup2(moved[i], FD_FIRST + i) < 0)
			return error_errno();
		if (i < job->fd_count)
			fds[i] = FD_FIRST + i;
	}
	syscall(SYS_close_range, (unsigned int)(FD_FIRST + count), ~0u, 0u);
	return FD_FIRST + job->fd_count;
}

static void child_run(const struct saver_job *job, int out, pid_t parent)
{
	struct saver_end end = {0};
	int fds[FDS_MAX] = {-1, -1}, err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	signal(SIGPIPE, SIG_IGN);
	priority_rest();
	err = descriptors_keep(job, fds, out);
	if (err >= 0) {
		out = err;
		err = job->what == SAVER_BLOCKS ? blocks_save(job->trace, job->process, fds[0])
						: snapshot_save(job, fds);
	}
	if (err) {
		end.err = err;
		snprintf(end.reason, sizeof(end.reason), "%s", error_reason(err));
		err = write(out, &end, sizeof(end)) == sizeof(end);
	}
	_exit(end.err != 0);
}

static int job_start(struct saver **out, const struct saver_job *job)
{
	struct saver *saver = calloc(1, sizeof(*saver));
	pid_t parent = getpid();
	int ends[2];

	if (!saver)
		return -ENOMEM;
	if (pipe2(ends, O_CLOEXEC)) {
		int err = error_errno();

		free(saver);
		return err;
	}
	saver->pipe = ends[0];
	saver->start_ns = clock_ns(CLOCK_MONOTONIC);
	saver->pid = fork();
	if (!saver->pid)
		child_run(job, ends[1], parent);
	int err = saver->pid < 0 ? error_errno() : 0;
	close(ends[1]);
	if (err) {
		close(ends[0]);
		free(saver);
		return err;
	}
	*out = saver;
	return 0;
}

int saver_start(struct saver **out, struct trace *trace, enum saver_what what, size_t process,
		int fd)
{
	const struct saver_job job = {
		.trace = trace, .what = what, .process = process, .fds = {fd}, .fd_count = 1};

	return job_start(out, &job);
}

int saver_record(struct saver **out, struct trace *trace, const struct recorder *recorder)
{
	const struct saver_job job = {
		.trace = trace,
		.what = SAVER_RECORD,
		.process = SAVER_ALL,
		.recorder = *recorder,
		.fds = {recorder->file, recorder->last},
		.fd_count = FDS_MAX,
	};

	return job_start(out, &job);
}

int saver_poll_fd(const struct saver *saver)
{
	return saver->pipe;
}

uint64_t saver_start_ns(const struct saver *saver)
{
	return saver->start_ns;
}

int saver_finish(struct saver *saver)
{
	struct saver_end end = {0};
	ssize_t got;
	int status = 0, err = 0;

	while ((got = read(saver->pipe, &end, sizeof(end))) < 0 && errno == EINTR)
		;
	while (waitpid(saver->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (got == sizeof(end) && end.err < 0) {
		end.reason[sizeof(end.reason) - 1] = '\0';
		err = error_set(end.err, "%s", end.reason);
	} else if (WIFSIGNALED(status)) {
		err = error_set(-EIO,
				"the process that writes the snapshot was killed by signal %d",
				WTERMSIG(status));
	} else if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		err = error_set(-EIO, "the process that writes the snapshot failed");
	}
	close(saver->pipe);
	free(saver);
	return err;
}

void saver_free(struct saver *saver)
{
	if (!saver)
		return;
	kill(saver->pid, SIGKILL);
	saver_finish(saver);
}
