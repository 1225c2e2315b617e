/* SPDX-License-Identifier: Apache-2.0 */
#include "process/patience.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/regular.h"

#define MS_NS 1000000ull
#define KNOWN 4096u        /* processes that are remembered; a newer one replaces an older one */
#define SLOW  (2 * MS_NS)  /* a shorter wait is not counted */
#define LONG  (50 * MS_NS) /* such a wait is tried again */
#define RENEW (50 * MS_NS)
#define WAITS 5u

struct known {
	pid_t pid;
	uint64_t window_ns, waited_ns; /* since when it counts; what was waited for since */
	uint64_t fresh_ns;             /* until then its lock need not be tried */
};

/* One for this process: what a target takes of our time is taken from all that we do. */
static struct known known[KNOWN];

static struct known *known_find(pid_t pid, uint64_t now_ns)
{
	struct known *found = &known[(unsigned int)pid % KNOWN];

	if (found->pid != pid)
		*found = (struct known){.pid = pid, .window_ns = now_ns};
	if (now_ns - found->window_ns >= PATIENCE_WINDOW_MS * MS_NS) {
		found->window_ns = now_ns;
		found->waited_ns = 0;
	}
	return found;
}

static long sleeps_now(void)
{
	struct rusage usage = {0};

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static int lock_open(pid_t pid)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/*
 * Another process waits for the lock before we do. What takes long for it would for us, and cannot
 * be left then: it waits again until it is short, or until the share is used up.
 */
static void lock_try(struct known *at, uint64_t now_ns)
{
	int fd = at->pid > 0 && at->pid != getpid() ? lock_open(at->pid) : -1;
	uint64_t slept_ns;

	at->fresh_ns = now_ns + PATIENCE_FRESH_MS * MS_NS;
	if (fd < 0)
		return;
	do {
		slept_ns = 0;
		if (regular_answers(fd, &slept_ns) == -ETIMEDOUT)
			slept_ns = PATIENCE_SHARE_MS * MS_NS;
		if (slept_ns >= SLOW)
			at->waited_ns += slept_ns;
	} while (slept_ns >= LONG && at->waited_ns < PATIENCE_SHARE_MS * MS_NS);
	close(fd);
}

static int spent(const struct known *at)
{
	return error_set(-ETIMEDOUT,
			 "it keeps its memory map locked: reading it made the tracer wait for "
			 "%.1f s, so it is not read for up to %d s",
			 (double)at->waited_ns / 1e9, PATIENCE_WINDOW_MS / 1000);
}

int patience_explain(pid_t pid, int err)
{
	const struct known *at = known_find(pid, clock_ns(CLOCK_MONOTONIC));

	return err && at->waited_ns >= PATIENCE_SHARE_MS * MS_NS ? spent(at) : err;
}

int patience_begin(struct patience *patience, pid_t pid)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	struct known *at = known_find(pid, now_ns);

	if (at->waited_ns < PATIENCE_SHARE_MS * MS_NS && now_ns >= at->fresh_ns) {
		lock_try(at, now_ns);
		now_ns = clock_ns(CLOCK_MONOTONIC);
	}
	if (at->waited_ns >= PATIENCE_SHARE_MS * MS_NS)
		return spent(at);
	if (at->waited_ns && interrupt_pending())
		return error_set(-EINTR,
				 "it keeps its memory map locked, and the tracer is to end");
	*patience = (struct patience){pid, now_ns, sleeps_now()};
	return 0;
}

void patience_end(const struct patience *patience)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC), took_ns = now_ns - patience->began_ns;

	if (took_ns >= SLOW && sleeps_now() != patience->sleeps)
		known_find(patience->pid, now_ns)->waited_ns += took_ns;
}

int patience_renew(struct patience *patience)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);

	/* Called for each line of a file: the clock alone is cheap. */
	if (now_ns - patience->began_ns < RENEW)
		return 0;
	patience_end(patience);
	patience->began_ns = now_ns;
	patience->sleeps = sleeps_now();
	return patience_begin(patience, patience->pid);
}

uint64_t patience_wait_ns(pid_t pid)
{
	int fd = lock_open(pid);
	uint64_t entry, waited_ns = 0;
	struct patience patience;

	for (int i = 0; fd >= 0 && i < (int)WAITS; i++) {
		if (patience_begin(&patience, pid)) {
			waited_ns += PATIENCE_SHARE_MS * MS_NS;
			continue;
		}
		/* The first page: nothing is there, but the lock is taken. */
		if (pread(fd, &entry, sizeof(entry), 0) > 0 && sleeps_now() != patience.sleeps)
			waited_ns += clock_ns(CLOCK_MONOTONIC) - patience.began_ns;
		patience_end(&patience);
	}
	if (fd >= 0)
		close(fd);
	return waited_ns / WAITS;
}
