/* SPDX-License-Identifier: Apache-2.0 */
/* A process comes under trace: plan, announce, attach, read what is older. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "attach/features_missing.h"
#include "attach/leftover.h"
#include "attach/obstacles.h"
#include "base/clock.h"
#include "base/error.h"
#include "plan/plan_process.h"
#include "plan/plan_target.h"
#include "python/heap_place.h"
#include "python/version.h"
#include "session/session_state.h"
#include "symbols/symbols.h"

#define LOADER_TURNS    20
#define LOADER_PAUSE_NS 5000000
#define SETTLE_TURNS    4            /* programs that one process calls while it is looked at */
#define USERS_FRESH_NS  500000000ull /* for how long it is taken to be true who maps what */

uint32_t member_mode_flags(const struct member *member)
{
	return (member->layers & 1u << EVENT_LAYER_PYTHON ? EVENT_MODE_PYTHON : 0) |
	       (member->layers & 1u << EVENT_LAYER_NATIVE ? EVENT_MODE_NATIVE : 0) |
	       (member->layers & 1u << EVENT_LAYER_MMAP ? EVENT_MODE_MAPPED : 0) |
	       (member->large_blocks ? EVENT_MODE_LARGE : 0) |
	       (member->reuse_unseen ? EVENT_MODE_NO_REUSE : 0) |
	       (member->ends_unseen ? EVENT_MODE_NO_ENDS : 0);
}

int member_announce(struct session *session, struct member *member, const char *name, pid_t ns_pid,
		    int from_start, uint64_t time_ns)
{
	struct event_target record = {
		.header = {.type = EVENT_PROCESS,
			   .size = sizeof(record),
			   .time_ns = time_ns,
			   .tgid = member->pid,
			   .tid = member->pid},
		.python_version = member->runtime.version_hex,
		.nframe = session->opts.nframe,
		.realtime_ns = clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_MONOTONIC) - time_ns),
		.from_start = from_start,
		.mode = member->mode | member_mode_flags(member),
		.sample_bytes = session->opts.sample_bytes,
		.ns_pid = ns_pid,
	};

	memcpy(record.name, name, strnlen(name, sizeof(record.name) - 1));
	session_container(session, member->pid, record.container, sizeof(record.container));
	return member_begin(session, member, &record);
}

static void sites_count(const struct plan *plan, size_t *count, size_t *emulated)
{
	*count += plan->count;
	for (size_t i = 0; i < plan->count; i++)
		*emulated += plan->sites[i].emulated;
}

static const char *file_shown(const struct elf_file *file, int whole)
{
	const char *path = elf_file_path(file), *slash = whole ? NULL : strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/*
 * "CPython 3.11.2, malloc in libc.so.6"; paths: "CPython 3.11.2 in /usr/bin/python3.11, malloc in
 * /lib/libc.so.6".
 */
static void what_describe(const struct member *member, const struct plan_target *target, int paths,
			  char *out, size_t room)
{
	char version[VERSION_TEXT];
	size_t at = 0;

	out[0] = '\0';
	if (target->layers & 1u << EVENT_LAYER_PYTHON)
		at += snprintf(out, room, "CPython %s%s%s",
			       version_text(version, member->runtime.version_hex),
			       paths ? " in " : "",
			       paths ? file_shown(member->runtime.file, 1) : "");
	for (size_t i = 0; i < target->native_count && at < room; i++)
		at += snprintf(out + at, room - at, "%s%s",
			       !i ? at ? ", malloc in " : "malloc in " : ", ",
			       file_shown(target->native[i].file, paths));
	if (!at)
		snprintf(out, room, "mapped memory in %s",
			 file_shown(target->python.memory_file, paths));
}

static void attached_print(struct session *session, const struct member *member,
			   const struct plan_target *target, uint64_t elapsed_ns)
{
	const struct plan *plan = &target->python;
	size_t count = 0, emulated = 0;
	int level =
		session->expected_count > SESSION_TOLD || session->told++ >= SESSION_TOLD ? 2 : 1;
	char what[1024], missing[FEATURES_MISSING_ROOM];

	if (log_level < level)
		return;

	sites_count(plan, &count, &emulated);
	if (plan->memory)
		sites_count(plan->memory, &count, &emulated);
	for (size_t i = 0; i < target->native_count; i++)
		sites_count(target->native[i].plan, &count, &emulated);
	what_describe(member, target, 0, what, sizeof(what));
	log_info("attached to PID %d (%s): %s, %s mode, %u frame%s; %zu probes; %llu ms",
		 member->pid, target->info.name, what, plan_mode_name(plan->mode),
		 session->opts.nframe, session->opts.nframe == 1 ? "" : "s", count,
		 (unsigned long long)(elapsed_ns / 1000000));
	what_describe(member, target, 1, what, sizeof(what));
	log_debug("PID %d: %s; %zu of the probes are on instructions that the kernel emulates",
		  member->pid, what, emulated);
	log_debug("%s%s%s", plan->level, plan->level[0] ? "; " : "",
		  attach_backend(session->attach));
	if (member->runtime.other[0])
		log_info("PID %d: it has another Python, of %s, which is not traced", member->pid,
			 member->runtime.other);
	if (plan->mode_why[0])
		log_info("not in %s mode: %s", plan_mode_name(session->opts.plan.python.mode),
			 plan->mode_why);
	if (!session->missing_told++ &&
	    features_missing(&session->features, missing, sizeof(missing)))
		log_info("with less: %s", missing);
	if (plan->memory_why[0])
		log_info("mapped memory is not followed: %s", plan->memory_why);
	for (size_t i = 0; plan->memory && i < plan->memory->missing_count; i++)
		log_info("mapped memory: %s is not followed: %s", plan->memory->missing[i].symbol,
			 plan->memory->missing[i].why);
	if (target->native_why[0])
		log_info("the native layer is not traced: %s", target->native_why);
	for (size_t i = 0; i < plan->missing_count; i++)
		log_debug("not probed: %s: %s", plan->missing[i].symbol, plan->missing[i].why);
}

/*
 * A probe in a file is met by every process that has it mapped, and costs it a trap. So probes lie
 * there only where all those are under trace or going to be.
 */
static int is_ours(pid_t pid, void *context)
{
	struct session *session = context;

	for (size_t i = 0; i < session->expected_count; i++)
		if (session->expected[i] == pid)
			return 1;
	return pid == getpid() || pid == attach_holder(session->attach) ||
	       member_find(session, pid);
}

struct file_users *session_users(struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!session->users || now - session->users_ns > USERS_FRESH_NS) {
		file_users_free(session->users);
		session->users = NULL;
		session->users_ns = now;
		if (file_users_read(&session->users))
			return NULL;
	}
	return session->users;
}

pid_t probe_scope(struct session *session, const struct member *member, const struct elf_file *file)
{
	struct file_users *users;

	/* One process's probes are to be taken out without those of others. */
	if (session->opts.overhead > 0)
		return member->pid;
	if (session->opts.everywhere || attach_is_everywhere(session->attach, file))
		return -1;
	if (session->opts.watch == ABI_WATCH_NONE || member->alone)
		return member->pid;
	users = session_users(session);
	return users && file_users_all(users, member->pid, elf_file_path(file), is_ours, session)
		       ? -1
		       : member->pid;
}

void member_planned(struct member *member, const struct plan_target *target)
{
	const struct plan *plan = &target->python;

	member->mode = plan->mode;
	member->layers = target->layers;
	member->large_blocks = plan->large_blocks;
	member->reuse_unseen = plan->reuse_unseen;
	member->ends_unseen = plan->ends_unseen;
	member->runtime.target.layers = target->layers;
	member->runtime.target.partial = !plan->complete;
	if (plan->memory)
		member->runtime.target.program_break = plan->memory->program_break;
}

int member_plans_each(const struct member *member, const struct plan_target *target,
		      plan_target_fn each, void *context)
{
	return plan_target_each(target,
				target->runtime.file ? target->runtime.file : member->runtime.file,
				each, context);
}

struct placing {
	struct session *session;
	const struct member *member;
	unsigned int groups;
};

static int plan_place(void *context, const struct plan *plan, const struct elf_file *file)
{
	const struct placing *placing = context;
	pid_t scope = probe_scope(placing->session, placing->member, file);

	log_debug("PID %d: probes in %s lie in %s", placing->member->pid, elf_file_path(file),
		  scope < 0 ? "the file, for every process that maps it" : "this process alone");
	return attach_groups(placing->session->attach, plan, file, scope, placing->groups);
}

int member_probe(struct session *session, struct member *member, const struct plan_target *target,
		 unsigned int groups)
{
	struct placing placing = {session, member, groups};
	char why[MEMBER_WHY];
	int fits = member_text_fits(session, member, target, groups, why);

	if (fits < 0)
		return fits;
	return fits ? member_plans_each(member, target, plan_place, &placing)
		    : error_set(-EIO, "%s", why);
}

/* Where the interpreter's file is mapped as code: native frames of a traceback end there. */
static void interpreter_find(struct member *member)
{
	struct abi_target *target = &member->runtime.target;
	struct process_maps maps;
	struct stat file;

	if (!member->runtime.version_hex || fstat(elf_file_fd(member->runtime.file), &file) ||
	    process_maps_read(member->pid, &maps))
		return;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (!map->executable || map->inode != file.st_ino ||
		    map->device_major != major(file.st_dev) ||
		    map->device_minor != minor(file.st_dev))
			continue;
		if (!target->interpreter_end)
			target->interpreter_start = map->start;
		target->interpreter_end = map->end;
	}
	process_maps_free(&maps);
}

static void target_describe(struct session *session, struct member *member, const struct plan *plan)
{
	struct abi_target *target = &member->runtime.target;

	target->nframe = session->opts.nframe;
	target->sample_bytes = session->opts.sample_bytes;
	target->space = session->next_space++;
	interpreter_find(member);
	/* One that cannot be described is not read. */
	if (member->layers & 1u << EVENT_LAYER_PYTHON &&
	    heap_describe(&member->runtime, &target->heap))
		log_debug("PID %d: %s", member->pid, error_reason(-ENOTSUP));
	for (size_t i = 0; i < ABI_OBJECT_CODES && plan->object_code[i].bytes; i++)
		target->object_code[i] =
			(struct abi_code){plan->object_code[i].start + member->runtime.bias,
					  plan->object_code[i].bytes};
}

/* What is on Python's heap already, and none has told of, is older. */
static int member_baseline(struct session *session, struct member *member, int from_start)
{
	int err;

	if (!(member->layers & 1u << EVENT_LAYER_PYTHON)) {
		member->heap_unreadable = 1;
		return 0;
	}
	if (from_start)
		return 0;
	err = member_census(session, member, 1, 0);
	/* The next reading may find the room. */
	if (account_is_full(err)) {
		log_info("PID %d: its heap could not be read: %s", member->pid, error_reason(err));
		return 0;
	}
	if (err != -ENOTSUP && err != -ENODATA)
		return err;
	/* The plan had found it: census mode ends if it cannot be read the next time either. */
	if (err == -ENOTSUP && member->mode == EVENT_MODE_CENSUS)
		return 0;
	member->heap_unreadable = 1;
	log_info("coverage will not be measured: %s", error_reason(err));
	return 0;
}

struct leftover_look {
	const struct session *session;
	pid_t pid;
	struct leftover found;
};

static int leftover_look(void *context, const struct plan *plan, const struct elf_file *file)
{
	struct leftover_look *look = context;

	/* Where our own lie in the file for all, they are what there is. */
	if (!attach_is_everywhere(look->session->attach, file))
		leftover_count(look->pid, plan, file, &look->found);
	return 0;
}

/*
 * Breakpoints that are there already are told of, of the first processes: a killed tracer's are
 * gone with ours.
 */
static void leftover_tell(const struct session *session, const struct member *member,
			  const struct plan_target *target)
{
	struct leftover_look look = {.session = session, .pid = member->pid};
	const struct leftover *found = &look.found;

	if (session->told >= SESSION_TOLD)
		return;
	member_plans_each(member, target, leftover_look, &look);
	if (found->at_sites)
		log_info("PID %d: %zu breakpoints were in its code before: another tracer's, or "
			 "left by one that was killed, which are gone when this one ends",
			 member->pid, found->at_sites);
	if (found->elsewhere)
		log_info("PID %d: %zu breakpoints are in its code where this mode has no probe: "
			 "another tracer's, or left by one that was killed in another mode; to "
			 "trace the process in that mode (-m exact has the most probes) until a "
			 "regular end takes those out",
			 member->pid, found->elsewhere);
	if (found->bytes_unlooked)
		log_debug("PID %d: %llu bytes of its code were not looked through for breakpoints",
			  member->pid, (unsigned long long)found->bytes_unlooked);
}

/*
 * It may have called another program since it was planned, of which nobody tells: where it was no
 * target, nobody has seen it. From now on an exec ends its membership. 0: it has not; -ESTALE.
 */
static int member_check_program(struct session *session, struct member *member, int program)
{
	if (program < 0 || !process_program_is_past(member->pid, program))
		return 0;
	/* What came is of another program, as if it had never been. */
	session_pull(session);
	if (member->begun && !member->ended)
		session_discard(session, (uint32_t)member->pid, member->runtime.target.space);
	member->ended = 1;
	return error_set(-ESTALE, "it calls one program after the other");
}

static int member_attach(struct session *session, struct member *member,
			 const struct plan_target *target, int program, int from_start)
{
	int err;

	target_describe(session, member, &target->python);
	leftover_tell(session, member, target);
	err = member_probe(session, member, target, ATTACH_ALL);
	if (err)
		return obstacle_tell(OBSTACLE_PROBE, err);
	err = member_announce(session, member, target->info.name, target->info.ns_pid, from_start,
			      clock_ns(CLOCK_MONOTONIC));
	if (!err)
		err = member_symbols_begin(session, member);
	if (err)
		return err;
	/* From here on events come. */
	err = attach_target(session->attach, member->pid, &member->runtime.target);
	if (!err)
		err = member_check_program(session, member, program);
	return err ? err : member_baseline(session, member, from_start);
}

static int seccomp_allows(struct session *session, pid_t pid, const struct plan_target *target)
{
	int err = seccomp_check(&session->seccomp, &session->features, pid, &target->python);

	for (size_t i = 0; i < target->native_count && !err; i++)
		err = seccomp_check(&session->seccomp, &session->features, pid,
				    target->native[i].plan);
	return err;
}

int session_has(struct session *session, pid_t pid)
{
	return member_find(session, (uint32_t)pid) != NULL;
}

/* Descriptors that a plan's probes take, one by one; a return is a probe of its own. */
static size_t plan_descriptors(const struct plan *plan)
{
	size_t count = plan->count;

	for (size_t i = 0; i < plan->count; i++)
		count += plan->sites[i].with_return != 0;
	return plan->memory ? count + plan_descriptors(plan->memory) : count;
}

static size_t target_descriptors(const struct plan_target *target)
{
	size_t count = plan_descriptors(&target->python);

	for (size_t i = 0; i < target->native_count; i++)
		count += plan_descriptors(target->native[i].plan);
	return count;
}

/* Is there what the probes of a plan take? 1, 0 and why not, with the figures; -errno. */
static int plan_fits(struct session *session, struct member *member,
		     const struct plan_target *target, char why[MEMBER_WHY])
{
	size_t left = attach_probes_left(session->attach), wanted = target_descriptors(target);

	if (wanted <= left)
		return member_text_looks(session, member, target, why);
	snprintf(why, MEMBER_WHY,
		 "%zu probes take a file descriptor each on this kernel, and %zu are left (ulimit "
		 "-Hn 65536, and ulimit -n, allow it more)",
		 wanted, left);
	return 0;
}

/* The plan, with as many probes as there can be: growth mode has a tenth of census's. */
static int member_plan(struct session *session, struct member *member, struct plan_target *target)
{
	struct plan_target_opts opts = session->opts.plan;
	char why[MEMBER_WHY], less[MEMBER_WHY];
	const char *remedy = "";
	int err = plan_target(member->pid, &opts, &session->plans, target), fits;

	if (err)
		return err;
	fits = plan_fits(session, member, target, why);
	if (fits)
		return fits < 0 ? fits : 0;
	if (target->layers & 1u << EVENT_LAYER_PYTHON && opts.python.mode != EVENT_MODE_GROWTH)
		remedy = "; --mode growth has a tenth of them";
	plan_target_free(target);
	*target = (struct plan_target){0};
	if (opts.python.mode == EVENT_MODE_CENSUS && !opts.mode_asked && !opts.layers) {
		opts.python.mode = EVENT_MODE_GROWTH;
		err = plan_target(member->pid, &opts, &session->plans, target);
		if (err)
			return err;
		fits = plan_fits(session, member, target, less);
		if (fits > 0)
			snprintf(target->python.mode_why, sizeof(target->python.mode_why), "%s",
				 why);
		if (fits)
			return fits < 0 ? fits : 0;
		plan_target_free(target);
		*target = (struct plan_target){0};
		remedy = "; nor does what growth mode takes fit";
	}
	return error_set(-EIO, "%s%s", why, remedy);
}

/* -ESTALE: it has called another program meanwhile. */
static int program_add(struct session *session, pid_t pid, int from_start)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	struct plan_target target = {0};
	struct member *member;
	int program = -1, err = 0;

	error_clear();
	/* What is in the ring buffer is of the time before, of another program perhaps. */
	session_pull(session);
	/*
	 * In what is drained by that it may have called the next program, which is a newborn, too.
	 */
	for (int turn = 0; (member = member_find(session, pid)); turn++)
		if (!member->newborn || turn == SETTLE_TURNS ||
		    newborn_settle(session, member, &err))
			return err;
	if (pid == attach_holder(session->attach) ||
	    (session->symbols && symbols_is_worker(session->symbols, pid)))
		return error_set(-ENOENT, "it is the tracer's own");
	members_release(session, pid);
	err = member_new(session, pid, &member);
	if (err)
		return err;
	program = process_program_open(pid);
	/* Before the plan is made: what is mapped after it is not in it. */
	if (newborn_layers(&session->opts) && member_symbols_look(session, member) == -ENOMEM)
		err = -ENOMEM;
	if (!err)
		err = member_plan(session, member, &target);
	if (!err && member->pidfd < 0)
		err = -ESRCH;
	if (err)
		goto out;
	/* The runtime is the member's from here on. */
	member->runtime = target.runtime;
	target.runtime = (struct python_runtime){0};
	member_planned(member, &target);
	err = seccomp_allows(session, pid, &target);
	if (!err && !from_start)
		session_cost_prepare(session);
	if (!err)
		err = member_attach(session, member, &target, program, from_start);
	if (err)
		goto out;
	if (member_governor_begin(session, member))
		log_info("PID %d: --overhead does not work: %s", pid, error_reason(-ESRCH));
	if (!from_start)
		member_cost_begin(session, member);
	if (!member->runtime.version_hex && member->symbols.count && newborn_layers(&session->opts))
		newborn_files_settle(session, member->symbols.modules[0]);
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	attached_print(session, member, &target, member->census_ns - start);
out:
	/* What could not be read was the next program's, perhaps. */
	if (err && member_check_program(session, member, program))
		err = -ESTALE;
	plan_target_free(&target);
	if (program >= 0)
		close(program);
	if (err)
		member_abandon(session, member);
	return err;
}

/*
 * A program that was called in the midst of it has no libraries yet: its loader is given some time
 * for them.
 */
int session_add(struct session *session, pid_t pid, int from_start)
{
	const struct timespec pause = {.tv_nsec = LOADER_PAUSE_NS};
	int err = program_add(session, pid, from_start);

	if (err != -ESTALE)
		return err;
	for (int turn = 0; turn < LOADER_TURNS && (err == -ESTALE || err == -ENOENT); turn++) {
		if (turn)
			nanosleep(&pause, NULL);
		err = program_add(session, pid, from_start);
	}
	return err;
}
