/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child keeps only its output file and the result pipe. It closes the probes and the target's
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

static int snapshot_save(struct trace *trace, size_t process, int fd)
{
	struct snapshot *snapshot;
	struct outfile *file;
	int err = process == SAVER_ALL ? trace_snapshot_all(trace, 1, &snapshot)
				       : trace_snapshot(trace, process, 1, &snapshot);

	/* Free the child's copy. Until now, pages that the session has modified exist twice. */
	trace_free(trace);
	if (!err)
		err = outfile_on(&file, fd, "the snapshot's file");
	if (err)
		return err;
	err = pprof_write(snapshot, file);
	if (!err)
		err = outfile_commit(file);
	else
		outfile_discard(file);
	/*
	 * The session renames the file afterwards without waiting for the disk. A pipe cannot be
	 * synced.
	 */
	if (!err && fsync(fd) && errno != EINVAL && errno != EROFS)
		err = -errno;
	return err;
}

static void child_run(struct trace *trace, enum saver_what what, size_t process, int fd, int out,
		      pid_t parent)
{
	struct saver_end end = {0};
	int err = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	signal(SIGPIPE, SIG_IGN);
	/* Move both to higher numbers first, so that dup2() cannot overwrite one of them. */
	fd = fcntl(fd, F_DUPFD, 16);
	out = fcntl(out, F_DUPFD, 16);
	if (fd < 0 || out < 0 || dup2(fd, 3) < 0 || dup2(out, 4) < 0)
		err = -errno;
	else
		syscall(SYS_close_range, 5u, ~0u, 0u);
	if (!err)
		err = what == SAVER_BLOCKS ? blocks_save(trace, process, 3)
					   : snapshot_save(trace, process, 3);
	if (err) {
		end.err = err;
		snprintf(end.reason, sizeof(end.reason), "%s", error_reason(err));
		err = write(4, &end, sizeof(end)) == sizeof(end);
	}
	_exit(end.err != 0);
}

int saver_start(struct saver **out, struct trace *trace, enum saver_what what, size_t process,
		int fd)
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
		child_run(trace, what, process, fd, ends[1], parent);
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
