/* SPDX-License-Identifier: Apache-2.0 */
/* A process comes under trace: plan, announce, attach, read what is older. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "probe/plan_process.h"
#include "probe/session_state.h"
#include "python/heap.h"
#include "python/version.h"

static int process_announce(struct session *session, const struct member *member, const char *name,
			    int from_start)
{
	struct event_target record = {
		.header = {.type = EVENT_PROCESS,
			   .size = sizeof(record),
			   .time_ns = clock_ns(CLOCK_MONOTONIC),
			   .tgid = member->pid,
			   .tid = member->pid},
		.python_version = member->runtime.version_hex,
		.nframe = session->opts.nframe,
		.realtime_ns = clock_ns(CLOCK_REALTIME),
		.from_start = from_start,
		.mode = member->mode | EVENT_MODE_PYTHON,
		.sample_bytes = session->opts.sample_bytes,
	};

	if (member->mode == EVENT_MODE_GROWTH)
		record.mode |= (member->mapped ? EVENT_MODE_MAPPED : 0) |
			       (member->large_blocks ? EVENT_MODE_LARGE : 0);

	memcpy(record.name, name, strnlen(name, sizeof(record.name) - 1));
	return session_feed(session, &record, sizeof(record));
}

static void attached_print(const struct session *session, const struct member *member, const char *name,
			   const struct plan *plan, uint64_t elapsed_ns)
{
	char version[VERSION_TEXT];
	size_t count = 0, emulated = 0;

	for (const struct plan *part = plan; part; part = part->memory) {
		count += part->count;
		for (size_t i = 0; i < part->count; i++)
			emulated += part->sites[i].emulated;
	}
	log_info("attached to PID %d (%s): CPython %s in %s; %zu probes, %zu of them on instructions that "
		 "the kernel emulates; %s mode, %u frame%s; %llu ms",
		 member->pid, name, version_text(version, member->runtime.version_hex),
		 elf_file_path(member->runtime.file), count, emulated, plan_mode_name(plan->mode),
		 session->opts.nframe, session->opts.nframe == 1 ? "" : "s",
		 (unsigned long long)(elapsed_ns / 1000000));
	if (plan->mode_why[0])
		log_info("not in %s mode: %s", plan_mode_name(session->opts.plan.mode), plan->mode_why);
	log_info("%s; %s", plan->level, attach_backend(session->attach));
	if (plan->memory_why[0])
		log_info("mapped memory is not followed: %s", plan->memory_why);
	for (size_t i = 0; i < plan->missing_count; i++)
		log_debug("not probed: %s: %s", plan->missing[i].symbol, plan->missing[i].why);
}

static int member_new(struct session *session, pid_t pid, struct member **out)
{
	struct member **members = realloc(session->members, (session->count + 1) * sizeof(*members));
	struct member *member;

	if (!members)
		return -ENOMEM;
	session->members = members;
	member = calloc(1, sizeof(*member));
	if (!member)
		return -ENOMEM;
	member->pid = pid;
	/* The descriptor first: it names this process even if the number is given out again. A thread has none. */
	member->pidfd = syscall(SYS_pidfd_open, pid, 0);
	*out = member;
	return 0;
}

static int member_attach(struct session *session, struct member *member, const char *name,
			 const struct plan *plan, int from_start)
{
	int err;

	member->runtime.target.nframe = session->opts.nframe;
	member->runtime.target.sample_bytes = session->opts.sample_bytes;
	member->runtime.target.space = session->next_space++;
	/* One that cannot be described is not read. */
	if (heap_describe(&member->runtime, &member->runtime.target.heap))
		log_debug("PID %d: %s", member->pid, error_reason(-ENOTSUP));
	if (plan->object_code.end) {
		member->runtime.target.object_code_start = plan->object_code.start + member->runtime.bias;
		member->runtime.target.object_code_end = plan->object_code.end + member->runtime.bias;
	}
	if (plan->memory)
		member->runtime.target.program_break = plan->memory->program_break;
	err = process_announce(session, member, name, from_start);
	if (!err)
		err = attach_sites(session->attach, plan, member->runtime.file, member->pid);
	if (!err && plan->memory)
		err = attach_sites(session->attach, plan->memory, plan->memory_file, member->pid);
	if (err)
		return err;
	member->index = trace_process_count(session->trace) - 1;
	/* From here on events come. What is on the heap and none has told of is older. */
	err = attach_target(session->attach, member->pid, &member->runtime.target);
	if (err || from_start)
		return err;
	err = member_census(session, member, 1, 0);
	if (err != -ENOTSUP)
		return err;
	member->heap_unreadable = 1;
	log_info("coverage will not be measured: %s", error_reason(err));
	return 0;
}

int session_add(struct session *session, pid_t pid, int from_start)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	struct process_info info;
	struct plan plan = {0};
	struct member *member = NULL;
	int err;

	err = member_new(session, pid, &member);
	if (err)
		return err;
	err = plan_process(pid, &session->opts.plan, session->plans, &info, &member->runtime, &plan);
	if (!err && member->pidfd < 0)
		err = -ESRCH;
	member->mode = plan.mode;
	member->mapped = plan.memory != NULL;
	member->large_blocks = plan.large_blocks;
	if (!err)
		err = seccomp_check(&session->seccomp, &session->features, pid, &plan);
	if (!err)
		err = member_attach(session, member, info.name, &plan, from_start);
	if (err) {
		plan_free(&plan);
		member_close(member);
		return err;
	}
	err = member_governor_begin(session, member);
	if (err)
		log_info("PID %d: --overhead does not work: %s", pid, error_reason(err));
	session->members[session->count++] = member;
	member->census_ns = clock_ns(CLOCK_MONOTONIC);
	attached_print(session, member, info.name, &plan, member->census_ns - start);
	plan_free(&plan);
	return 0;
}
