/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/source_roots.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "container/state_file.h"

/* Processes of which the same is to be told. */
struct told {
	const struct snapshot_meta *first;
	size_t count;
	int err;
};

static void told_add(struct told *told, const struct snapshot_meta *process, int err)
{
	if (told->count++)
		return;
	told->first = process;
	told->err = err;
}

static void told_print(const struct told *told, const char *what, const char *why)
{
	char container[4 * sizeof(told->first->container)], more[48] = "";

	if (!told->count)
		return;
	text_escape(container, sizeof(container), told->first->container);
	if (told->count > 1)
		snprintf(more, sizeof(more), " and %zu more processes", told->count - 1);
	log_info("--source: %s PID %u%s%s%s%s: %s", what, told->first->pid,
		 container[0] ? " (container " : "", container, container[0] ? ")" : "", more, why);
}

static int is_same(int fd, const struct stat *here)
{
	struct stat other;

	return !fstat(fd, &other) && here->st_dev == other.st_dev && here->st_ino == other.st_ino;
}

/* Is it looked into already? */
static int root_is_known(struct source_roots *roots, int fd, const struct stat *own)
{
	struct stat here;

	if (is_same(fd, own)) {
		roots->own = 1;
		return 1;
	}
	for (size_t i = 0; i < roots->count; i++)
		if (!fstat(roots->fds[i], &here) && is_same(fd, &here))
			return 1;
	return 0;
}

/* Takes the descriptor over. 0; -E2BIG there are more roots than are looked into. */
static int root_add(struct source_roots *roots, int fd, const struct stat *own)
{
	int known = root_is_known(roots, fd, own);

	if (!known && roots->count < SOURCE_ROOTS_MAX) {
		roots->fds[roots->count++] = fd;
		return 0;
	}
	close(fd);
	return known ? 0 : -E2BIG;
}

/* Of one that may not be there any more: was it in a container, as far as that is known? */
static int is_elsewhere(const struct snapshot_meta *process)
{
	return process->container[0] || (process->ns_pid && process->ns_pid != process->pid);
}

/* Nothing of a container is held open while it is traced: its files could not be unmounted. */
static void process_add(struct source_roots *roots, const struct snapshot_meta *process,
			const struct stat *own, struct told *gone, struct told *beyond)
{
	int fd = process->has_exited ? -ESRCH : state_root_open((pid_t)process->pid);

	if (fd >= 0) {
		if (root_add(roots, fd, own))
			told_add(beyond, process, -E2BIG);
	} else if (is_elsewhere(process) || (fd != -ESRCH && fd != -ENOENT)) {
		told_add(gone, process, fd);
	} else {
		roots->own = 1;
	}
}

static void live_open(const struct snapshot *snapshot, struct source_roots *out)
{
	struct told gone = {0}, beyond = {0};
	struct stat own = {0};

	if (stat("/", &own)) /* every root is another one, then */
		log_debug("/: %s", strerror(errno));
	for (size_t i = 0; i < snapshot_process_count(snapshot); i++)
		process_add(out, snapshot_process(snapshot, i), &own, &gone, &beyond);
	told_print(&gone, "no lines of the files of",
		   gone.err == -ESRCH || gone.err == -ENOENT ? "it has ended, and they went with it"
							     : strerror(-gone.err));
	told_print(&beyond, "no lines of the files of", "too many containers");
}

void source_roots_open(const struct snapshot *snapshot, int live, struct source_roots *out)
{
	struct told elsewhere = {0};

	*out = (struct source_roots){.own = !live};
	if (live) {
		live_open(snapshot, out);
		return;
	}
	for (size_t i = 0; i < snapshot_process_count(snapshot); i++)
		if (is_elsewhere(snapshot_process(snapshot, i)))
			told_add(&elsewhere, snapshot_process(snapshot, i), 0);
	told_print(&elsewhere, "lines are of this machine's files, not of those of",
		   "they may differ");
}

void source_roots_close(struct source_roots *roots)
{
	for (size_t i = 0; i < roots->count; i++)
		close(roots->fds[i]);
	roots->count = 0;
}
