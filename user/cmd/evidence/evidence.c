/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/evidence/evidence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/evidence/bundle.h"
#include "cmd/evidence/suspect.h"
#include "cmd/options/options.h"
#include "proc/container/memory_watch.h"
#include "proc/family.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/outfile.h"

#define SPOOL                                                                                      \
	"."                                                                                        \
	"tracer-evidence-" /* the folder of copies: a process that lives holds its lock */

#define NS             1e9
#define LOOK_MAX       0.25 /* seconds between two looks at a target, far from a limit */
#define LOOK_MIN       0.01
#define LOOK_EACH      0.1            /* the same for each target, if there are few */
#define LOOKS          25             /* until the limit is reached at the present rate */
#define COPY_AT        0.5            /* the first copy, by what is used of the limit */
#define COPY_SOON      5.0            /* or if the limit is that many seconds away */
#define COPY_LEAST     0.1            /* but not before */
#define COPY_NEXT      0.75           /* the next one when so much is left of what was left then */
#define AGAIN_AT       0.8            /* from there on also now and then, */
#define AGAIN_S        30             /* not more often than that, */
#define AGAIN_COST     100            /* nor for more than 1 of so much of the time */
#define FAIL_S         1              /* after a copy that failed */
#define FREE_AT        0.3            /* copies are dropped below */
#define KILLED_NS      2000000000ull  /* a victim has ended that long after the count of kills */
#define NEAR_NS        60000000000ull /* between two bundles of a process that lives */
#define NAMES          64u            /* of which the time of the last bundle is kept */
#define START_NS       30000000000ull /* for how long a bundle is tried to be begun */
#define FAMILY_NS      500000000ull   /* how often new workers are looked for */
#define FAMILY_SOON_NS 50000000ull    /* the same if a limit is COPY_SOON away, */
#define FAMILY_FAR_NS  2000000000ull  /* and if it is far: one may have a cgroup of its own */
#define FAR_S          60             /* a limit that is farther away is not looked at closely */
#define TOGETHER_NS    50000000ull
#define RSS_NS         1000000000ull /* how often RSS is read far from a limit */
#define MACHINE_AT     0.8 /* of the machine's memory: then its largest process is watched */
#define PER_TARGET     64u /* processes that are watched in a cgroup */
#define STRAYS         16u /* found in one round */

/* The processes of a cgroup that are watched: its limit is theirs together. */
struct evidence_target {
	struct memory_watch *watch;
	struct memory_state state;
	struct suspect **suspects;
	size_t count, capacity;
	double level, rate; /* of the limit or the threshold that is nearest; a second */
	double copied_at;   /* the level at the last copy */
	bool machine;       /* the machine's memory is its limit, too: it has the largest process */
	uint64_t looked_ns, next_ns, family_ns, rss_ns;
	uint64_t rss;              /* of the largest, as of rss_ns */
	double pressure;           /* on the cgroup's memory, the same; 0 to 1 */
	uint64_t kills;            /* that were counted */
	uint64_t unexplained;      /* of them no bundle tells yet */
	uint64_t near_ns;          /* when one was written of a process that lives */
	uint64_t kill_ns;          /* one that is not: CLOCK_MONOTONIC; 0: none */
	uint64_t kill_time_ns;     /* the same by CLOCK_REALTIME */
	unsigned int fired;        /* triggers of the cgroup, as suspect.fired */
	enum trigger_kind reached; /* that the next bundle of a threshold is for */
	struct suspect *fires;     /* is copied for the trigger's bundle */
	/* the bundle that is being written, by a process; 0: none */
	pid_t writer;
	struct suspect *written;
	enum bundle_reason reason;
	char *path;
};

struct evidence_set {
	struct evidence_opts opts; /* folder is ours */
	struct evidence_target *targets;
	size_t count, capacity;
	size_t bundles;
	pid_t strays[STRAYS]; /* workers in other cgroups than those that have forked them */
	size_t stray_count;
	struct evidence_name {
		char name[64];
		enum bundle_reason reason;
		enum trigger_kind kind; /* of BUNDLE_MEMORY */
		uint64_t time_ns;       /* CLOCK_MONOTONIC, of its last bundle for that reason */
	} names[NAMES];                 /* a ring */
	size_t name_next;
	uint64_t machine_ns; /* the last look at the machine */
	bool is_short;       /* it was short of memory then */
	int folder;          /* of the copies */
	char folder_path[PATH_MAX];
};

/* --- the folder of copies --------------------------------------------------------------------- */

static void folder_clean(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *entry;
	struct stat st;

	if (fd < 0)
		return;
	DIR *dir = fstat(fd, &st) || st.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB)
			   ? NULL
			   : fdopendir(fd);
	if (!dir) {
		close(fd);
		return;
	}
	while ((entry = readdir(dir)))
		unlinkat(fd, entry->d_name, 0);
	unlinkat(parent, name, AT_REMOVEDIR);
	closedir(dir);
}

/* Of tracers that were killed: folders of copies, and bundles that are half written. */
static void folders_clean(const char *folder)
{
	_cleanup_(closedirp) DIR *dir = opendir(folder);
	struct dirent *entry;

	if (dir)
		outfile_clean(dirfd(dir));
	while (dir && (entry = readdir(dir)))
		if (!strncmp(entry->d_name, SPOOL, strlen(SPOOL)))
			folder_clean(dirfd(dir), entry->d_name);
}

int evidence_new(struct evidence_set **out, const struct evidence_opts *opts)
{
	struct evidence_set *evidence = calloc(1, sizeof(*evidence));

	if (!evidence)
		return -ENOMEM;
	evidence->opts = *opts;
	evidence->folder = -1;
	evidence->opts.folder = strdup(opts->folder);
	if (!evidence->opts.folder) {
		free(evidence);
		return -ENOMEM;
	}
	folders_clean(opts->folder);
	snprintf(evidence->folder_path, sizeof(evidence->folder_path), "%s/" SPOOL "XXXXXX",
		 opts->folder);
	int err = mkdtemp(evidence->folder_path) ? 0 : error_errno();
	evidence->folder =
		err ? -1
		    : open(evidence->folder_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (!err && (evidence->folder < 0 || flock(evidence->folder, LOCK_EX | LOCK_NB)))
		err = error_errno();
	if (err) {
		evidence_free(evidence);
		return err;
	}
	*out = evidence;
	return 0;
}

static void bundle_end(struct evidence_set *evidence, struct evidence_target *target, bool wait);

static void target_free(struct evidence_set *evidence, struct evidence_target *target)
{
	bundle_end(evidence, target, 1);
	for (size_t i = 0; i < target->count; i++)
		suspect_free(target->suspects[i], evidence->folder);
	free(target->suspects);
	free(target->path);
	memory_watch_close(target->watch);
}

void evidence_free(struct evidence_set *evidence)
{
	if (!evidence)
		return;
	for (size_t i = 0; i < evidence->count; i++)
		target_free(evidence, &evidence->targets[i]);
	free(evidence->targets);
	if (evidence->folder >= 0) {
		close(evidence->folder);
		folder_clean(AT_FDCWD, evidence->folder_path);
	}
	free((char *)evidence->opts.folder);
	free(evidence);
}

/* --- processes -------------------------------------------------------------------------------- */

static struct suspect *suspect_find(const struct evidence_target *target, pid_t pid)
{
	for (size_t i = 0; i < target->count; i++)
		if (target->suspects[i]->pid == pid && !target->suspects[i]->ended)
			return target->suspects[i];
	return NULL;
}

static int target_add(struct evidence_target *target, pid_t pid)
{
	if (suspect_find(target, pid))
		return 0;
	if (target->count == PER_TARGET)
		return -ENOSPC;
	int err = ARRAY_GROW(target->suspects, target->capacity, target->count);
	err = err ?: suspect_new(&target->suspects[target->count], pid);
	target->count += !err;
	return err;
}

/* A watch without a visible cgroup is of one process alone. */
static struct evidence_target *target_find(struct evidence_set *evidence,
					   const struct memory_watch *watch)
{
	const char *path = memory_watch_cgroup(watch);

	for (size_t i = 0; i < evidence->count && path[0]; i++)
		if (!strcmp(memory_watch_cgroup(evidence->targets[i].watch), path))
			return &evidence->targets[i];
	return NULL;
}

bool evidence_has(const struct evidence_set *evidence, pid_t pid)
{
	for (size_t i = 0; i < evidence->count; i++)
		if (suspect_find(&evidence->targets[i], pid))
			return 1;
	return 0;
}

static int process_add(struct evidence_set *evidence, pid_t pid)
{
	struct memory_watch *watch;

	if (evidence_has(evidence, pid))
		return 0;
	int err = memory_watch_open(&watch, pid);
	if (err)
		return err;
	struct evidence_target *target = target_find(evidence, watch);
	if (target) {
		memory_watch_close(watch);
		return target_add(target, pid);
	}
	err = ARRAY_GROW(evidence->targets, evidence->capacity, evidence->count);
	if (err) {
		memory_watch_close(watch);
		return err;
	}
	target = &evidence->targets[evidence->count];
	*target = (struct evidence_target){.watch = watch};
	err = target_add(target, pid);
	if (err)
		target_free(evidence, target);
	else
		evidence->count++;
	return err;
}

int evidence_add(struct evidence_set *evidence, pid_t pid, bool baseline)
{
	int err = process_add(evidence, pid);

	for (size_t i = 0; i < evidence->count && !err && baseline; i++) {
		struct suspect *suspect = suspect_find(&evidence->targets[i], pid);

		if (suspect && !suspect->count)
			suspect_copy_begin(suspect, evidence->folder, 0, 0);
	}
	return err;
}

size_t evidence_count(const struct evidence_set *evidence)
{
	size_t count = 0;

	for (size_t i = 0; i < evidence->count; i++)
		count += evidence->targets[i].count;
	return count;
}

size_t evidence_written(const struct evidence_set *evidence)
{
	return evidence->bundles;
}

bool evidence_is_writing(const struct evidence_set *evidence)
{
	for (size_t i = 0; i < evidence->count; i++)
		if (evidence->targets[i].writer > 0)
			return 1;
	return 0;
}

/* Is a process in the target's cgroup? One that cannot be read is none of its. */
static bool is_in(const struct evidence_target *target, pid_t pid)
{
	struct memory_watch *watch;

	if (memory_watch_open(&watch, pid))
		return 0;
	bool is_same = !strcmp(memory_watch_cgroup(watch), memory_watch_cgroup(target->watch));
	memory_watch_close(watch);
	return is_same;
}

/* It becomes a target of its own once nobody walks through the targets. */
static void stray_note(struct evidence_set *evidence, pid_t pid)
{
	if (evidence->stray_count < STRAYS)
		evidence->strays[evidence->stray_count++] = pid;
}

/* What the processes have forked since: a worker may be the one that leaks. */
static void families_add(struct evidence_set *evidence, struct evidence_target *target)
{
	size_t count = target->count;

	for (size_t i = 0; i < count; i++) {
		size_t workers;
		pid_t *pids;

		if (target->suspects[i]->ended ||
		    family_list(target->suspects[i]->pid, &pids, &workers))
			continue;
		for (size_t k = 0; k < workers; k++)
			if (evidence_has(evidence, pids[k]))
				continue;
			else if (!is_in(target, pids[k]))
				stray_note(evidence, pids[k]);
			else if (!target_add(target, pids[k]))
				suspect_inherit(target->suspects[target->count - 1],
						target->suspects[i], evidence->folder);
		free(pids);
	}
}

/* The one that has most memory. NULL: all have ended. */
static struct suspect *suspect_largest(const struct evidence_target *target, uint64_t *bytes)
{
	struct suspect *largest = NULL;

	for (size_t i = 0; i < target->count; i++) {
		struct suspect *suspect = target->suspects[i];

		if (!suspect->ended && !process_rss_read(suspect->pid, &suspect->rss, NULL) &&
		    (!largest || suspect->rss > largest->rss))
			largest = suspect;
	}
	*bytes = largest ? largest->rss : 0;
	return largest;
}

/* Asks the kernel about all of them at once. Returns how many have ended. */
static size_t suspects_end(struct evidence_target *target)
{
	struct pollfd fds[PER_TARGET];
	size_t ended = 0;

	for (size_t i = 0; i < target->count; i++)
		fds[i] = (struct pollfd){target->suspects[i]->pidfd, POLLIN, 0};
	if (poll(fds, target->count, 0) <= 0)
		return 0;
	for (size_t i = 0; i < target->count; i++) {
		target->suspects[i]->ended |= fds[i].revents != 0;
		ended += target->suspects[i]->ended;
	}
	return ended;
}

/* With a kill the state stays that before it: of the limit that the victim has left. */
static void state_read(struct evidence_target *target)
{
	struct memory_state now;

	memory_watch_read(target->watch, target->machine, &now);
	if (now.kills <= target->kills) {
		if (!target->kill_ns)
			target->state = now;
		return;
	}
	if (!target->state.limit)
		memory_watch_read(target->watch, 1, &target->state);
	target->unexplained += now.kills - target->kills;
	target->kills = target->state.kills = now.kills;
	target->kill_ns = clock_ns(CLOCK_MONOTONIC);
	target->kill_time_ns = clock_ns(CLOCK_REALTIME);
}

/*
 * Forgets those that have ended, unless a kill is to be explained: the kernel counts it before it
 * ends the victim.
 */
static void suspects_sweep(struct evidence_set *evidence, struct evidence_target *target)
{
	size_t kept = 0, ended = suspects_end(target);

	if (ended && !target->kill_ns)
		state_read(target);
	if (!ended || target->kill_ns)
		return;
	for (size_t i = 0; i < target->count; i++) {
		struct suspect *suspect = target->suspects[i];

		if (suspect->ended && suspect != target->fires && suspect != target->written)
			suspect_free(suspect, evidence->folder);
		else
			target->suspects[kept++] = suspect;
	}
	target->count = kept;
}

/* --- bundles ---------------------------------------------------------------------------------- */

/* NAME-PID-TIME.evidence: of the name what a file's name may have. */
static void path_make(const struct evidence_set *evidence, const struct suspect *suspect,
		      uint64_t time_ns, char path[PATH_MAX])
{
	time_t seconds = (time_t)(time_ns / 1000000000);
	char name[64], when[32] = "";
	struct tm utc;

	if (evidence->opts.path) {
		snprintf(path, PATH_MAX, "%s", evidence->opts.path);
		return;
	}
	snprintf(name, sizeof(name), "%s", suspect->name);
	for (char *at = name; *at; at++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *at))
			*at = '_';
	if (gmtime_r(&seconds, &utc))
		strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &utc);
	snprintf(path, PATH_MAX, "%s/%s-%d-%s.evidence", evidence->opts.folder, name,
		 (int)suspect->pid, when);
}

static struct evidence_name *name_find(struct evidence_set *evidence, const char *name,
				       enum bundle_reason reason, enum trigger_kind kind)
{
	for (size_t i = 0; i < NAMES; i++)
		if (!strcmp(evidence->names[i].name, name) && evidence->names[i].reason == reason &&
		    evidence->names[i].kind == kind)
			return &evidence->names[i];
	return NULL;
}

/*
 * Is it too soon for another such bundle of processes of that name? One that is killed and started
 * again all the time would take the place of all others.
 */
static bool is_too_soon(struct evidence_set *evidence, const char *name, enum bundle_reason reason,
			enum trigger_kind kind)
{
	const struct evidence_name *last = name_find(evidence, name, reason, kind);
	uint64_t since_ns = last ? clock_ns(CLOCK_MONOTONIC) - last->time_ns : UINT64_MAX;

	if (since_ns >= evidence->opts.pause_ns)
		return 0;
	log_info("%s: no evidence: one of that name was begun %d s ago (evidence.pause)", name,
		 (int)((double)since_ns / NS));
	return 1;
}

static void name_note(struct evidence_set *evidence, const char *name, enum bundle_reason reason,
		      enum trigger_kind kind)
{
	struct evidence_name *last = name_find(evidence, name, reason, kind)
					     ?: &evidence->names[evidence->name_next++ % NAMES];

	snprintf(last->name, sizeof(last->name), "%s", name);
	last->reason = reason;
	last->kind = kind;
	last->time_ns = clock_ns(CLOCK_MONOTONIC);
}

/* Begins to write it. The suspect's copies stay as they are until bundle_end(). 0: no process. */
static bool bundle_start(struct evidence_set *evidence, struct evidence_target *target,
			 struct suspect *suspect, enum bundle_reason reason, uint64_t time_ns)
{
	char path[PATH_MAX];

	suspects_end(target);
	/* Of one that lives, what is there must do: nobody waits for it. */
	if (!suspect->ended)
		suspect_copy_abort(suspect);
	suspect_copy_end(suspect, evidence->folder, 1);
	if (!target->state.limit)
		memory_watch_read(target->watch, 1, &target->state);
	path_make(evidence, suspect, time_ns, path);
	const struct bundle bundle = {.reason = reason,
				      .time_ns = time_ns,
				      .suspect = suspect,
				      .state = &target->state,
				      .watch = target->watch,
				      .trigger = &evidence->opts.triggers.items[target->reached],
				      .kind = target->reached,
				      .rss = suspect->rss,
				      .path = path,
				      .keep = evidence->opts.path ? evidence->opts.keep : 1,
				      .folder = evidence->folder,
				      .folder_path = evidence->folder_path};
	pid_t pid = bundle_begin(&bundle);
	free(target->path);
	target->path = strdup(path);
	if (pid < 0) {
		error_print((int)pid, NULL, "%s", path);
		return 0;
	}
	name_note(evidence, suspect->name, reason, reason == BUNDLE_OOM ? 0 : target->reached);
	target->reason = reason;
	target->written = suspect;
	target->writer = pid;
	return 1;
}

/* Has the bundle been written that was begun? wait: until then. */
static void bundle_end(struct evidence_set *evidence, struct evidence_target *target, bool wait)
{
	const struct suspect *suspect = target->written;
	int status;

	if (target->writer <= 0 ||
	    waitpid(target->writer, &status, wait ? 0 : WNOHANG) != target->writer)
		return;
	target->writer = 0;
	target->written = NULL;
	if (WIFSIGNALED(status))
		error_print(error_set(-EIO, "writing it ended with signal %d", WTERMSIG(status)),
			    "the evidence is lost", "%s", target->path ?: "evidence");
	if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_DONE)
		return;
	evidence->bundles++;
	log_info("%s: evidence of PID %d (%s), which %s%s", target->path ?: "evidence",
		 (int)suspect->pid, suspect->name,
		 target->reason == BUNDLE_MEMORY ? "has reached its threshold of "
		 : suspect->ended                ? "the kernel killed for memory"
						 : "was near a process that the kernel killed for "
						   "memory",
		 target->reason == BUNDLE_MEMORY
			 ? evidence->opts.triggers.items[target->reached].text
			 : "");
	if (evidence->opts.done && target->path)
		evidence->opts.done(evidence->opts.done_context, target->path);
}

/* The process that a counted kill has ended, that with most copies. NULL: none has ended yet. */
static struct suspect *victim_find(struct evidence_target *target)
{
	struct suspect *victim = NULL;

	suspects_end(target);
	for (size_t i = 0; i < target->count; i++) {
		struct suspect *suspect = target->suspects[i];

		if (suspect->ended && !suspect->told && (!victim || suspect->count > victim->count))
			victim = suspect;
	}
	return victim;
}

/*
 * A kill that is counted: the process that ended then was meant, the largest one if none did. Of
 * one that lives a bundle is not written again and again, as its neighbours may be killed all the
 * time.
 */
static void kill_explain(struct evidence_set *evidence, struct evidence_target *target,
			 uint64_t now_ns)
{
	struct suspect *victim = victim_find(target);
	uint64_t bytes;

	if (target->writer > 0 || (!victim && now_ns - target->kill_ns < KILLED_NS))
		return;
	if (!victim && (!target->near_ns || now_ns - target->near_ns >= NEAR_NS)) {
		victim = suspect_largest(target, &bytes);
		target->near_ns = now_ns;
	}
	if (victim && evidence->opts.on_oom &&
	    !is_too_soon(evidence, victim->name, BUNDLE_OOM, 0) &&
	    !bundle_start(evidence, target, victim, BUNDLE_OOM, target->kill_time_ns) &&
	    now_ns - target->kill_ns < START_NS)
		return; /* no process can be started: at the next look, for some time */
	if (victim)
		victim->told = victim->ended;
	target->unexplained -= target->unexplained > 0;
	if (!target->unexplained || !victim_find(target))
		target->kill_ns = target->unexplained = 0;
}

/* --- a look ----------------------------------------------------------------------------------- */

/* Is it reached by each process alone, not by their cgroup? */
static bool is_of_process(enum trigger_kind kind)
{
	return kind == TRIGGER_RSS || kind == TRIGGER_GROWTH;
}

/* How near a trigger is: 1, it is reached; 0: there is none. */
static double trigger_level(const struct evidence_set *evidence,
			    const struct evidence_target *target, const struct suspect *suspect,
			    enum trigger_kind kind)
{
	const double now[TRIGGER_KINDS] = {[TRIGGER_SHARE] = target->state.share,
					   [TRIGGER_RSS] = (double)suspect->rss,
					   [TRIGGER_GROWTH] = (double)suspect->growth,
					   [TRIGGER_PRESSURE] = target->pressure};
	double value = evidence->opts.triggers.items[kind].value;

	return value > 0 ? now[kind] / value : 0;
}

/* The same of the nearest one that was not reached yet, and of the limit. */
static double level_of(const struct evidence_set *evidence, const struct evidence_target *target)
{
	double level = evidence->opts.on_oom ? target->state.share : 0;

	for (size_t i = 0; i < target->count; i++) {
		const struct suspect *suspect = target->suspects[i];

		for (enum trigger_kind kind = 0; kind < TRIGGER_KINDS && !suspect->ended; kind++) {
			unsigned int fired = is_of_process(kind) ? suspect->fired : target->fired;

			if (!(fired & 1u << kind))
				level = fmax(level, trigger_level(evidence, target, suspect, kind));
		}
	}
	return level;
}

/* Seconds until the limit is reached at the present rate. */
static double seconds_left(const struct evidence_target *target)
{
	return target->rate > 0 ? (1 - target->level) / target->rate : INFINITY;
}

/* Bytes of all copies. */
static uint64_t copies_bytes(const struct evidence_set *evidence)
{
	int fd = openat(evidence->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closedirp) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat st;

	while (dir && (entry = readdir(dir)))
		if (!fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
		    S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_blocks * 512;
	return bytes;
}

/* Is there room for a copy, and in the file system for more of others than that? */
static bool has_room(const struct evidence_set *evidence, struct suspect *suspect)
{
	struct statvfs fs;
	uint64_t rss, space = evidence->opts.space;
	const char *why = NULL;

	if (fstatvfs(evidence->folder, &fs) || process_rss_read(suspect->pid, &rss, NULL))
		return 1;
	if ((uint64_t)fs.f_bavail * fs.f_frsize <= rss + (uint64_t)fs.f_blocks * fs.f_frsize / 20)
		why = "a copy would fill the file system of its folder";
	else if (space && copies_bytes(evidence) + rss > space)
		why = "with a copy of it, all copies would take more than evidence.space";
	if (!why)
		return 1;
	snprintf(suspect->reason, sizeof(suspect->reason), "%s", why);
	suspect->done_ns = clock_ns(CLOCK_MONOTONIC);
	suspect->failures++;
	return 0;
}

static void copy_begin(struct evidence_set *evidence, struct evidence_target *target,
		       struct suspect *suspect)
{
	bool hurried = seconds_left(target) < COPY_SOON;

	if (!has_room(evidence, suspect))
		return;
	if (!suspect_copy_begin(suspect, evidence->folder, target->state.share, hurried))
		target->copied_at = target->level;
}

/* Is a copy due? Their number is bounded by what is left, and in time by what they take. */
static bool copy_is_due(const struct evidence_target *target, const struct suspect *suspect,
			uint64_t now_ns)
{
	/* It may have been completed in this look, after now_ns. */
	uint64_t since_ns = now_ns > suspect->done_ns ? now_ns - suspect->done_ns : 0;
	double left = 1 - target->level, since = (double)since_ns / NS;

	if (suspect->failures && since < FAIL_S * pow(2, fmin(suspect->failures - 1, 6)))
		return 0;
	if (target->level < COPY_AT &&
	    (seconds_left(target) > COPY_SOON || target->level < COPY_LEAST))
		return 0;
	if (!suspect->count || left <= COPY_NEXT * (1 - target->copied_at))
		return 1;
	return target->level >= AGAIN_AT &&
	       since >= fmax(AGAIN_S, AGAIN_COST * (double)suspect->took_ns / NS);
}

/* The copy for a trigger's bundle has been made. */
static void trigger_fire(struct evidence_set *evidence, struct evidence_target *target)
{
	struct suspect *suspect = target->fires;

	if (!suspect || suspect->worker > 0 || target->writer > 0)
		return;
	bundle_start(evidence, target, suspect, BUNDLE_MEMORY, clock_ns(CLOCK_REALTIME));
	target->fires = NULL;
}

/* One that was reached is left once less than 90 % of it is. Each has a bundle of its own. */
static void trigger_look(struct evidence_set *evidence, struct evidence_target *target,
			 struct suspect *suspect, enum trigger_kind kind)
{
	unsigned int *fired = is_of_process(kind) ? &suspect->fired : &target->fired,
		     bit = 1u << kind;
	double level = trigger_level(evidence, target, suspect, kind);

	if (level < 1) {
		*fired &= ~(level > 0.9 ? 0 : bit);
		return;
	}
	if (*fired & bit || target->fires || target->writer > 0 || suspect->worker > 0)
		return;
	*fired |= bit;
	/* What is copied from now on is for what was not reached yet. */
	target->level = level_of(evidence, target);
	if (is_too_soon(evidence, suspect->name, BUNDLE_MEMORY, kind))
		return;
	target->reached = kind;
	target->fires = suspect;
	copy_begin(evidence, target, suspect);
}

static void triggers_check(struct evidence_set *evidence, struct evidence_target *target,
			   struct suspect *largest)
{
	for (enum trigger_kind kind = 0; kind < TRIGGER_KINDS; kind++) {
		if (!is_of_process(kind))
			trigger_look(evidence, target, largest, kind);
		for (size_t i = 0; is_of_process(kind) && i < target->count; i++)
			if (!target->suspects[i]->ended)
				trigger_look(evidence, target, target->suspects[i], kind);
	}
}

/* Is there something to do soon? Most limits are far away most of the time. */
static bool is_near(const struct evidence_target *target)
{
	return target->level >= COPY_AT / 2 ||
	       (target->level > COPY_LEAST && seconds_left(target) < FAR_S);
}

/* Far from every limit again, the copies of a folder for all take room in vain. */
static void copies_drop(const struct evidence_set *evidence, struct evidence_target *target)
{
	for (size_t i = 0; i < target->count; i++) {
		struct suspect *suspect = target->suspects[i];

		if (suspect->count && suspect != target->written && suspect != target->fires &&
		    suspect->worker <= 0)
			suspect_drop(suspect, evidence->folder);
	}
	target->copied_at = 0;
}

/* What the triggers compare. The largest process; NULL: all have ended. */
static struct suspect *figures_read(const struct evidence_set *evidence,
				    struct evidence_target *target, uint64_t now_ns)
{
	const struct trigger *items = evidence->opts.triggers.items;
	struct suspect *largest = suspect_largest(target, &target->rss);

	target->rss_ns = now_ns;
	for (size_t i = 0; i < target->count && items[TRIGGER_GROWTH].value > 0; i++) {
		struct suspect *suspect = target->suspects[i];

		suspect->growth = trigger_past_growth(&suspect->past, &items[TRIGGER_GROWTH],
						      suspect->rss, now_ns);
	}
	if (items[TRIGGER_PRESSURE].value > 0)
		target->pressure = memory_watch_pressure(target->watch, target->machine);
	return largest;
}

/* How often new workers are looked for. The agent lists all processes. */
static uint64_t family_ns(const struct evidence_set *evidence, const struct evidence_target *target)
{
	if (is_near(target))
		return seconds_left(target) < COPY_SOON ? FAMILY_SOON_NS : FAMILY_NS;
	return evidence->opts.path ? FAMILY_FAR_NS : UINT64_MAX;
}

static void target_look(struct evidence_set *evidence, struct evidence_target *target,
			uint64_t now_ns)
{
	uint64_t before_ns = target->looked_ns;
	double before = target->level, seconds;

	state_read(target);
	target->looked_ns = now_ns;
	bundle_end(evidence, target, 0);
	for (size_t i = 0; i < target->count; i++)
		if (target->suspects[i] != target->written)
			suspect_copy_end(target->suspects[i], evidence->folder, 0);
	if (target->kill_ns)
		kill_explain(evidence, target, clock_ns(CLOCK_MONOTONIC));
	trigger_fire(evidence, target);
	if (now_ns - target->family_ns >= family_ns(evidence, target)) {
		target->family_ns = now_ns;
		families_add(evidence, target);
	}
	/* Far from a limit only a trigger of RSS, or a machine that is short, asks for it. */
	struct suspect *largest = NULL;
	if (is_near(target) || ((triggers_any(&evidence->opts.triggers) || evidence->is_short) &&
				now_ns - target->rss_ns >= RSS_NS))
		largest = figures_read(evidence, target, now_ns);
	target->level = level_of(evidence, target);
	seconds = (double)(now_ns - before_ns) / NS;
	if (before_ns && seconds > 0)
		target->rate = fmax((target->level - before) / seconds, target->rate / 2);
	if (target->level < FREE_AT && target->rate * FAR_S < FREE_AT && !evidence->opts.path)
		copies_drop(evidence, target);
	if (largest)
		triggers_check(evidence, target, largest);
	if (largest && largest->worker <= 0 && largest != target->written &&
	    copy_is_due(target, largest, now_ns))
		copy_begin(evidence, target, largest);
	suspects_sweep(evidence, target);
	double next = fmax((1 - target->level) / fmax(target->rate, 1e-9) / LOOKS, LOOK_MIN);
	double most = target->kill_ns || target->writer
			      ? LOOK_MIN
			      : fmin(LOOK_EACH * (double)evidence->count, LOOK_MAX);
	target->next_ns = now_ns + (uint64_t)(fmin(next, most) * NS);
	/* Those that are far from their limits are looked at together; few of them more often. */
	if (next > most && most * NS > TOGETHER_NS)
		target->next_ns -= target->next_ns % TOGETHER_NS;
}

/* Has one of its descriptors said something? */
static bool is_urgent(struct evidence_target *target)
{
	struct pollfd event = {.fd = memory_watch_fd(target->watch), .events = POLLPRI};

	/* A cgroup that is gone says something all the time; the next look is near. */
	if (target->writer > 0)
		return 0;
	return poll(&event, 1, 0) > 0 || suspects_end(target) > 0;
}

/* When the machine itself is short, the kernel kills the largest process of all. */
static void machine_look(struct evidence_set *evidence, uint64_t now_ns)
{
	double pressure = evidence->opts.triggers.items[TRIGGER_PRESSURE].value;
	struct evidence_target *largest = NULL;

	if (now_ns - evidence->machine_ns < RSS_NS)
		return;
	evidence->machine_ns = now_ns;
	evidence->is_short = memory_watch_machine() >= MACHINE_AT ||
			     (pressure > 0 && memory_watch_pressure(NULL, 1) >= pressure);
	for (size_t i = 0; i < evidence->count; i++) {
		struct evidence_target *target = &evidence->targets[i];

		/* What was named is watched for it in any case. */
		target->machine = evidence->opts.path != NULL;
		if (!largest || target->rss > largest->rss)
			largest = target;
	}
	if (largest)
		largest->machine |= evidence->is_short;
}

uint64_t evidence_step(struct evidence_set *evidence, bool events)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC), next_ns = now_ns + (uint64_t)(LOOK_MAX * NS);
	size_t kept = 0;

	machine_look(evidence, now_ns);
	for (size_t i = 0; i < evidence->count; i++) {
		struct evidence_target *target = &evidence->targets[i];
		bool urgent = events && is_urgent(target);

		if (urgent || now_ns >= target->next_ns)
			target_look(evidence, target, now_ns);
		next_ns = target->next_ns < next_ns ? target->next_ns : next_ns;
		if (!target->count) {
			target_free(evidence, target);
			continue;
		}
		evidence->targets[kept++] = *target;
	}
	evidence->count = kept;
	/* One that cannot be added has ended, most likely; else it is found again. */
	while (evidence->stray_count)
		process_add(evidence, evidence->strays[--evidence->stray_count]);
	now_ns = clock_ns(CLOCK_MONOTONIC);
	return next_ns > now_ns ? next_ns - now_ns : 0;
}

size_t evidence_poll_fds(const struct evidence_set *evidence, struct pollfd *fds, size_t capacity)
{
	size_t count = 0;

	for (size_t i = 0; i < evidence->count; i++) {
		const struct evidence_target *target = &evidence->targets[i];

		if (target->writer > 0)
			continue;
		if (count < capacity && memory_watch_fd(target->watch) >= 0)
			fds[count++] = (struct pollfd){memory_watch_fd(target->watch), POLLPRI, 0};
		for (size_t k = 0; k < target->count && count < capacity; k++)
			if (!target->suspects[k]->ended)
				fds[count++] =
					(struct pollfd){target->suspects[k]->pidfd, POLLIN, 0};
	}
	return count;
}
