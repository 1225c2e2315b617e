/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/options/source_roots.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "proc/container/state_file.h"
#include "proc/process.h"
#include "util/error.h"
#include "util/text.h"

/* Processes that share one caveat. */
struct caveat {
	const struct snapshot_meta *first;
	size_t count;
	int err;
};

static void caveat_add(struct caveat *caveat, const struct snapshot_meta *process, int err)
{
	if (caveat->count++)
		return;
	caveat->first = process;
	caveat->err = err;
}

static void caveat_print(const struct caveat *caveat, const char *what, const char *why)
{
	char container[4 * sizeof(caveat->first->container)], more[48] = "";

	if (!caveat->count)
		return;
	text_escape(container, sizeof(container), caveat->first->container);
	if (caveat->count > 1)
		snprintf(more, sizeof(more), " and %zu more processes", caveat->count - 1);
	log_info("--source: %s PID %u%s%s%s%s: %s", what, caveat->first->pid,
		 container[0] ? " (container " : "", container, container[0] ? ")" : "", more, why);
}

/* Is the root in the list already? */
static bool root_is_known(struct source_roots *roots, int fd, const struct process_root *own)
{
	struct process_root root, other;

	if (process_root_identify(fd, &root))
		return 0;
	if (process_root_is(&root, own)) {
		roots->own = 1;
		return 1;
	}
	for (size_t i = 0; i < roots->count; i++)
		if (!process_root_identify(roots->fds[i], &other) && process_root_is(&root, &other))
			return 1;
	return 0;
}

/* Takes ownership of fd. 0; -E2BIG if there are more than SOURCE_ROOTS_MAX roots. */
static int root_add(struct source_roots *roots, int fd, const struct process_root *own)
{
	int known = root_is_known(roots, fd, own);

	if (!known && roots->count < SOURCE_ROOTS_MAX) {
		roots->fds[roots->count++] = fd;
		return 0;
	}
	close(fd);
	return known ? 0 : -E2BIG;
}

/* Was a process, which may have ended, in a container, as far as the snapshot knows? */
static bool is_elsewhere(const struct snapshot_meta *process)
{
	return process->container[0] || (process->ns_pid && process->ns_pid != process->pid);
}

/* No file of a container is held open during the trace: it would block unmounting. */
static void process_add(struct source_roots *roots, const struct snapshot_meta *process,
			const struct process_root *own, struct caveat *gone, struct caveat *beyond)
{
	int fd = process->has_exited ? -ESRCH : state_root_open((pid_t)process->pid);

	if (fd >= 0) {
		if (root_add(roots, fd, own))
			caveat_add(beyond, process, -E2BIG);
	} else if (is_elsewhere(process) || (fd != -ESRCH && fd != -ENOENT)) {
		caveat_add(gone, process, fd);
	} else {
		roots->own = 1;
	}
}

static void live_open(const struct snapshot *snapshot, struct source_roots *out)
{
	struct caveat gone = {0}, beyond = {0};
	struct process_root own = {0};
	int fd = state_root_open(0), err = fd < 0 ? fd : process_root_identify(fd, &own);

	if (err) /* then every root differs from ours */
		log_debug("/: %s", strerror(-err));
	if (fd >= 0)
		close(fd);
	for (size_t i = 0; i < snapshot_process_count(snapshot); i++)
		process_add(out, snapshot_process(snapshot, i), &own, &gone, &beyond);
	caveat_print(&gone, "no source lines from",
		     gone.err == -ESRCH || gone.err == -ENOENT ? "it has ended, and its files are "
								 "out of reach"
							       : strerror(-gone.err));
	caveat_print(&beyond, "no source lines from", "too many containers");
}

void source_roots_open(const struct snapshot *snapshot, int live, struct source_roots *out)
{
	struct caveat elsewhere = {0};

	*out = (struct source_roots){.own = !live};
	if (live) {
		live_open(snapshot, out);
		return;
	}
	for (size_t i = 0; i < snapshot_process_count(snapshot); i++)
		if (is_elsewhere(snapshot_process(snapshot, i)))
			caveat_add(&elsewhere, snapshot_process(snapshot, i), 0);
	caveat_print(&elsewhere, "lines come from this machine's files, not from those of",
		     "they may differ");
}

void source_roots_close(struct source_roots *roots)
{
	for (size_t i = 0; i < roots->count; i++)
		close(roots->fds[i]);
	roots->count = 0;
}
