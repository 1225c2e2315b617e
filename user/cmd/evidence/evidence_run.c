/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/evidence/evidence_run.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cmd/evidence/suspect.h"
#include "cmd/options/options.h"
#include "cmd/options/signals.h"
#include "cmd/options/targets.h"
#include "proc/process.h"
#include "proc/sandbox/privileges.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/outfile.h"

#define LIST_NS   2000000000ull /* how often new processes of the targets are looked for */
#define POLLS_MAX 1024u

struct evidence_watch {
	struct evidence_set *evidence;
	struct target_set *targets;
	int signals, interrupts;
	uint64_t end_ns, list_ns;
};

/* What cannot be read now cannot be read when its memory runs out. 0, -EPERM, -errno. */
static int access_check(pid_t pid)
{
	_cleanup_(buffer_free) struct buffer environment = {0};
	int err = process_file_read(pid, "environ", 1, &environment);

	return err == -EACCES ? -EPERM : err;
}

/* Those that match now. 0; -errno after a message: one that was named cannot be watched. */
static int processes_add(struct evidence_watch *watch, int first)
{
	const struct target_set *set = watch->targets;
	size_t count;
	pid_t *pids;
	int err = targets_list(watch->targets, "tracer list shows what runs", &pids, &count),
	    status = err;

	watch->list_ns = clock_ns(CLOCK_MONOTONIC) + LIST_NS;
	for (size_t i = 0; !err && i < count; i++) {
		int failed = (first ? access_check(pids[i]) : 0)
				     ?: evidence_add(watch->evidence, pids[i], first);

		if (failed && first && target_set_is_pids(set)) {
			pid_error_print(pids[i], failed);
			status = failed;
		}
	}
	if (!err && first && !status && !evidence_count(watch->evidence) &&
	    !target_set_may_grow(set))
		status = targets_none_print(set, count);
	if (!err)
		free(pids);
	return status;
}

/* Does a descriptor say something? */
static bool events_wait(struct evidence_watch *watch, uint64_t wait_ns)
{
	struct pollfd fds[POLLS_MAX] = {{.fd = watch->signals, .events = POLLIN}};
	size_t count = 1 + evidence_poll_fds(watch->evidence, fds + 1, POLLS_MAX - 1);

	return poll(fds, count, (int)(wait_ns / 1000000 + 1)) > 0;
}

static void evidence_watch_run(struct evidence_watch *watch)
{
	int grows = target_set_may_grow(watch->targets);
	bool events = 1;

	while (evidence_count(watch->evidence) || grows) {
		uint64_t wait_ns = evidence_step(watch->evidence, events),
			 now_ns = clock_ns(CLOCK_MONOTONIC);

		if (signals_end(watch->signals, NULL, &watch->interrupts) ||
		    (watch->end_ns && now_ns >= watch->end_ns))
			return;
		if (grows && now_ns >= watch->list_ns)
			processes_add(watch, 0);
		if (watch->end_ns && watch->end_ns - now_ns < wait_ns)
			wait_ns = watch->end_ns - now_ns;
		events = events_wait(watch, wait_ns);
	}
}

/* The directory of a file: what its name has before the last slash. */
static void folder_of(const char *path, char folder[PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
		 slash ? path : ".");
}

/* Can the file be written, before anything is waited for? */
static int path_check(const char *path)
{
	struct outfile *file;
	int err = outfile_open(&file, path, OUTFILE_OWN);

	if (!err)
		outfile_discard(file);
	return err ? error_print(err, NULL, "%s", path) : 0;
}

int evidence_run(struct evidence_opts *opts, struct target_set *targets, uint64_t duration_ns)
{
	struct evidence_watch watch = {.targets = targets, .signals = -1};
	char folder[PATH_MAX];
	int err = path_check(opts->path);

	if (err)
		return EXIT_FAILED;
	folder_of(opts->path, folder);
	opts->folder = folder;
	err = evidence_new(&watch.evidence, opts);
	if (err) {
		error_print(err, "copies of heaps are kept there", "%s", folder);
		return EXIT_FAILED;
	}
	watch.end_ns = duration_ns ? clock_ns(CLOCK_MONOTONIC) + duration_ns : 0;
	err = processes_add(&watch, 1);
	if (!err) {
		/*
		 * What takes its memory within a second would be gone before our turn on a busy
		 * machine, and a few looks a second cost nothing. Refused, they wait as others do.
		 */
		setpriority(PRIO_PROCESS, 0, SUSPECT_NICE_HURRIED);
		err = signals_catch(&watch.signals, 1) ?: privileges_drop(1, -1);
		if (err)
			error_print(err, NULL, "evidence");
	}
	if (!err) {
		log_info("watching the memory of %zu process%s: no probe is placed",
			 evidence_count(watch.evidence),
			 evidence_count(watch.evidence) == 1 ? "" : "es");
		evidence_watch_run(&watch);
		if (!evidence_written(watch.evidence))
			log_info("%s: not written: no memory ran out", opts->path);
	}
	evidence_free(watch.evidence);
	if (watch.signals >= 0)
		close(watch.signals);
	return err ? EXIT_FAILED : EXIT_DONE;
}
