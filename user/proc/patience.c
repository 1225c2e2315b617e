/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/patience.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "proc/lock_read.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/interrupt.h"
#include "util/sched_time.h"

#define MS_NS         1000000ull
#define KNOWN         4096u /* processes that are remembered; a newer one replaces an older one */
#define PLACES        8u    /* where one may be */
#define SLOW          (2 * MS_NS)  /* a shorter wait is not counted */
#define LONG          (50 * MS_NS) /* such a wait is tried again */
#define RENEW         (50 * MS_NS)
#define WAITS         5u
#define ROUNDS        3 /* of so many tries, while one of a round waits */
#define MEAN_FRESH_MS 3000u
#define PAUSE_NS                                                                                   \
	10000000l    /* between two tries: one after the other may all slip between two holders */
#define LEAST_MS 20u /* of a try: an honest process is read in that time */
/* at the end, of all tries: for which they wait for no lock, but for a processor */
#define BUSY_MS 5000u
/* at the end, of all processes that are looked at again */
#define AGAIN_MS 100u

struct patience_known {
	pid_t pid;
	/* since when it counts; what was waited for since, of the time that its reads took */
	uint64_t window_ns, waited_ns, took_ns;
	uint64_t tried_ns; /* when its lock was tried last, and was free; 0: never */
	uint64_t slow_ns;  /* until then it counts as one that makes us wait */
	int again, free;   /* it was looked at again at the end; its lock is free since */
	uint64_t mean_ns,
		mean_at_ns; /* patience_wait_ns() of an honest one, and when; at 0: never */
};

/* One for this process: what a target takes of our time is taken from all that we do. */
static struct patience_known known[KNOWN];

/* When the user begins to wait for our end, and what processes took of that time. */
static uint64_t end_ns = UINT64_MAX, end_waited_ns, end_busy_ns, end_again_ns;

void patience_end_at(uint64_t time_ns)
{
	if (time_ns < end_ns)
		end_ns = time_ns;
}

bool patience_is_ending(void)
{
	return clock_ns(CLOCK_MONOTONIC) >= end_ns || interrupt_pending();
}

/* Has it made us wait, in the time that counts? */
static bool is_kept(const struct patience_known *at, uint64_t now_ns)
{
	return at->waited_ns && now_ns - at->window_ns < PATIENCE_WINDOW_MS * MS_NS;
}

/* A process that has not made us wait gives its place to one that shares it. */
static struct patience_known *known_find(pid_t pid, uint64_t now_ns)
{
	struct patience_known *found = NULL;

	for (unsigned int i = 0; i < PLACES; i++) {
		struct patience_known *at = &known[((unsigned int)pid + i) % KNOWN];

		if (at->pid == pid) {
			found = at;
			break;
		}
		if (!found && !is_kept(at, now_ns))
			found = at;
	}
	if (!found)
		found = &known[(unsigned int)pid % KNOWN];
	if (found->pid != pid)
		*found = (struct patience_known){.pid = pid, .window_ns = now_ns};
	if (now_ns - found->window_ns >= PATIENCE_WINDOW_MS * MS_NS) {
		found->window_ns = now_ns;
		found->waited_ns = found->took_ns = 0;
	}
	return found;
}

static long sleeps_now(void)
{
	struct rusage usage = {0};

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

/*
 * A process that keeps its lock taken makes us wait for most of the time that we read it. On a busy
 * machine the waits of many thousand reads may add up to as much, when an honest one was not
 * scheduled while it had the lock.
 */
static bool is_spent(const struct patience_known *at)
{
	return at->waited_ns >= PATIENCE_SHARE_MS * MS_NS && at->waited_ns >= at->took_ns / 2;
}

static void wait_count(struct patience_known *at, uint64_t now_ns, uint64_t took_ns,
		       uint64_t slept_ns)
{
	at->took_ns += took_ns;
	if (slept_ns >= SLOW)
		at->waited_ns += slept_ns;
	if (slept_ns < LONG)
		return;
	at->slow_ns = now_ns + PATIENCE_WINDOW_MS * MS_NS;
	at->tried_ns = 0; /* its next read is tried, too */
	at->free = 0;
}

/* How long a try may take. */
static unsigned int try_ms(uint64_t now_ns)
{
	uint64_t left_ms = end_ns > now_ns ? (end_ns - now_ns) / MS_NS : 0,
		 end_ms = end_waited_ns / MS_NS;

	left_ms += end_ms + LEAST_MS < PATIENCE_END_MS ? PATIENCE_END_MS - end_ms : LEAST_MS;
	return left_ms < PATIENCE_SHARE_MS ? (unsigned int)left_ms : PATIENCE_SHARE_MS;
}

/* One read that we can leave. Returns what it waited. */
static uint64_t lock_try(struct patience_known *at)
{
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), now_ns, slept_ns = 0;
	unsigned int wait_ms = try_ms(began_ns),
		     busy_ms = end_busy_ns / MS_NS < BUSY_MS
				       ? BUSY_MS - (unsigned int)(end_busy_ns / MS_NS)
				       : 0;
	/* The first page: nothing is there, but the lock is taken. */
	int err = lock_read(at->pid, "pagemap", sizeof(uint64_t), 0, wait_ms,
			    patience_is_ending() ? busy_ms : 0, NULL, &slept_ns);

	now_ns = clock_ns(CLOCK_MONOTONIC);
	if (now_ns >= end_ns && now_ns - began_ns > wait_ms * MS_NS)
		end_busy_ns += now_ns - began_ns - wait_ms * MS_NS;
	if (err == -ETIMEDOUT && patience_is_ending()) /* nobody waits for how it ends */
		slept_ns = now_ns - began_ns > LONG ? now_ns - began_ns : LONG;
	wait_count(at, now_ns, now_ns - began_ns, slept_ns);
	if (slept_ns >= SLOW && now_ns >= end_ns)
		end_waited_ns += slept_ns;
	return slept_ns;
}

/*
 * Another thread waits for the lock before we do. What takes long for it would for us, and cannot
 * be left then: it waits again until it is short, or until the share is used up.
 */
static void lock_wait(struct patience_known *at)
{
	uint64_t slept_ns, now_ns;

	if (at->pid <= 0 || at->pid == getpid())
		return;
	do
		slept_ns = lock_try(at);
	while (slept_ns >= LONG && !is_spent(at) && !patience_is_ending());
	now_ns = clock_ns(CLOCK_MONOTONIC);
	if (at->slow_ns < now_ns)
		at->tried_ns = now_ns;
}

/*
 * sched_time_ns() of this thread, which costs as much as a read: as long as the thread has not
 * slept since it was read last, that has grown as the clock has.
 */
static uint64_t awake_now(uint64_t now_ns, long sleeps)
{
	static __thread struct {
		uint64_t time_ns, awake_ns;
		long sleeps;
	} last;

	if (!last.time_ns || last.sleeps != sleeps) {
		last.awake_ns = sched_time_ns(gettid());
		last.time_ns = now_ns;
		last.sleeps = sleeps;
	}
	return last.awake_ns == UINT64_MAX ? UINT64_MAX : last.awake_ns + (now_ns - last.time_ns);
}

static int spent(const struct patience_known *at)
{
	return error_set(-ETIMEDOUT,
			 "it keeps its memory map locked: reading it made the tracer wait for "
			 "%.1f s, so it is not read for up to %d s",
			 (double)at->waited_ns / 1e9, PATIENCE_WINDOW_MS / 1000);
}

int patience_explain(pid_t pid, int err)
{
	const struct patience_known *at = known_find(pid, clock_ns(CLOCK_MONOTONIC));

	return err && is_spent(at) ? spent(at) : err;
}

/*
 * At the end one long wait says little: the machine may have had no processor for whoever had the
 * lock. Some short tries in a row, between which others may take the lock, say that it is free.
 * Each process has them once.
 */
static bool is_free_again(struct patience_known *at)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};

	if (at->again)
		return at->free;
	at->again = 1;
	for (unsigned int tries = 0; tries < WAITS;) {
		if (end_again_ns >= AGAIN_MS * MS_NS)
			return 0;
		uint64_t slept_ns = lock_try(at);
		tries = slept_ns < LONG ? tries + 1 : 0;
		nanosleep(&pause, NULL);
		end_again_ns += slept_ns + PAUSE_NS;
	}
	at->free = 1;
	return 1;
}

int patience_begin(struct patience *patience, pid_t pid)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	struct patience_known *at = known_find(pid, now_ns);
	uint64_t fresh_ms = now_ns < end_ns ? PATIENCE_FRESH_MS : PATIENCE_END_FRESH_MS;

	if (!is_spent(at) && now_ns - at->tried_ns >= fresh_ms * MS_NS &&
	    !(at->slow_ns > now_ns && patience_is_ending())) {
		lock_wait(at);
		now_ns = clock_ns(CLOCK_MONOTONIC);
	}
	if (is_spent(at))
		return spent(at);
	if (at->slow_ns > now_ns && patience_is_ending() && !is_free_again(at))
		return error_set(-EINTR,
				 "it keeps its memory map locked, and the tracer is to end");
	*patience = (struct patience){pid, now_ns, UINT64_MAX, sleeps_now()};
	if (at->waited_ns || at->slow_ns > now_ns)
		patience->awake_ns = awake_now(now_ns, patience->sleeps);
	return 0;
}

/*
 * What a read has slept. The first time that a process makes us wait it is not known for which part
 * of the time a busy machine had no processor: no more than half of its share counts.
 */
static uint64_t slept_ns(const struct patience *patience, uint64_t took_ns)
{
	const uint64_t most_ns = PATIENCE_SHARE_MS * MS_NS / 2;

	if (patience->awake_ns != UINT64_MAX)
		return sched_slept_ns(gettid(), took_ns, patience->awake_ns);
	return took_ns < most_ns ? took_ns : most_ns;
}

void patience_end(const struct patience *patience)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC), took_ns = now_ns - patience->began_ns;
	int slept = took_ns >= SLOW && sleeps_now() != patience->sleeps;

	wait_count(known_find(patience->pid, now_ns), now_ns, took_ns,
		   slept ? slept_ns(patience, took_ns) : 0);
}

int patience_renew(struct patience *patience)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);

	/* Called for each line of a file: the clock alone is cheap. */
	if (now_ns - patience->began_ns < RENEW)
		return 0;
	patience_end(patience);
	patience->began_ns = now_ns;
	patience->awake_ns = UINT64_MAX;
	patience->sleeps = sleeps_now();
	return patience_begin(patience, patience->pid);
}

uint64_t patience_wait_ns(pid_t pid)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	struct patience_known *at = known_find(pid, clock_ns(CLOCK_MONOTONIC));
	uint64_t sum_ns = 0, worst_ns = 0, last_ns = SLOW, now_ns = clock_ns(CLOCK_MONOTONIC);
	unsigned int tries = 0;

	/* In a crowd that maps one file, each is asked about for each of the others. */
	if (at->mean_at_ns && now_ns - at->mean_at_ns < MEAN_FRESH_MS * MS_NS &&
	    at->slow_ns < now_ns)
		return at->mean_ns;
	for (int round = 0; round < ROUNDS && last_ns >= SLOW; round++) {
		last_ns = 0;
		for (unsigned int i = 0; i < WAITS && (!last_ns || !patience_is_ending()); i++) {
			uint64_t wait_ns = PATIENCE_SHARE_MS * MS_NS;

			if (round)
				nanosleep(&pause, NULL);
			if (!is_spent(at))
				wait_ns = lock_try(at);
			tries++;
			sum_ns += wait_ns;
			last_ns = wait_ns > last_ns ? wait_ns : last_ns;
		}
		worst_ns = last_ns > worst_ns ? last_ns : worst_ns;
	}
	if (last_ns >= LONG)
		return last_ns;
	at->mean_ns = tries > WAITS ? (sum_ns - worst_ns) / (tries - 1) : sum_ns / WAITS;
	at->mean_at_ns = clock_ns(CLOCK_MONOTONIC);
	return at->mean_ns;
}

pid_t patience_slow(void)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
	const struct patience_known *slow = NULL;

	for (size_t i = 0; i < KNOWN; i++)
		if (known[i].slow_ns > now_ns && (!slow || known[i].waited_ns > slow->waited_ns) &&
		    (!kill(known[i].pid, 0) || errno == EPERM))
			slow = &known[i];
	return slow ? slow->pid : 0;
}
