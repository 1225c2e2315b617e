/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child keeps only its output files and the result pipe. It closes the probes and the target's
 * descriptors at once, so that they end with the session. It is killed when the session ends.
 */
#include "control/saver.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/outfile.h"
#include "control/blocks_save.h"
#include "pprof/pprof.h"
#include "snapshot/snapshot.h"
#include "trace/trace.h"

#define REASON_BYTES 256
#define FDS_MAX      3
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

	return err ? err : pprof_save(snapshot, file);
}

static int snapshot_save(const struct saver_job *job, const int *fds)
{
	struct recorder recorder = job->recorder;
	struct snapshot *snapshot;
	int err = job->process == SAVER_ALL
			  ? trace_snapshot_all(job->trace, 1, &snapshot)
			  : trace_snapshot(job->trace, job->process, 1, &snapshot);

	/* Free the child's copy. Until now, pages that the session has modified exist twice. */
	trace_free(job->trace);
	if (err)
		return err;
	recorder.file = fds[0];
	recorder.state = fds[1];
	recorder.next = fds[2];
	err = job->what == SAVER_RECORD ? recorder_append(&recorder, snapshot)
					: profile_save(snapshot, fds[0]);
	/*
	 * The session renames the file afterwards without waiting for the disk. A pipe cannot be
	 * synced.
	 */
	if (!err && fsync(fds[0]) && errno != EINVAL && errno != EROFS)
		err = -errno;
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
			return -errno;
	}
	for (int i = 0; i < count; i++) {
		if (dup2(moved[i], FD_FIRST + i) < 0)
			return -errno;
		if (i < job->fd_count)
			fds[i] = FD_FIRST + i;
	}
	syscall(SYS_close_range, (unsigned int)(FD_FIRST + count), ~0u, 0u);
	return FD_FIRST + job->fd_count;
}

static void child_run(const struct saver_job *job, int out, pid_t parent)
{
	struct saver_end end = {0};
	int fds[FDS_MAX] = {-1, -1, -1}, err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	signal(SIGPIPE, SIG_IGN);
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
		int err = -errno;

		free(saver);
		return err;
	}
	saver->pipe = ends[0];
	saver->start_ns = clock_ns(CLOCK_MONOTONIC);
	saver->pid = fork();
	if (!saver->pid)
		child_run(job, ends[1], parent);
	int err = saver->pid < 0 ? -errno : 0;
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
		.fds = {recorder->file, recorder->state, recorder->next},
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
