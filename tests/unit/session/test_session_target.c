/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of a real session, with children of this process: which object owns them, and when they
 * are removed.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "session/follow.h"
#include "session/session.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "util/error.h"

static pid_t child_start(void)
{
	pid_t child = fork();

	if (!child)
		for (;;)
			pause();
	return child;
}

static void child_end(pid_t child)
{
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static struct session *session_make(void)
{
	const struct session_opts opts = {.nframe = 1, .ring_bytes = 1 << 20, .budget = 1 << 20};
	struct session *session;
	const char *remedy;
	int err;

	log_level = 0;
	err = session_new(&session, &opts, &remedy);
	if (err == -EPERM || err == -EACCES || err == -ENOSYS) {
		printf("there can be no session: %s\n", error_reason(err));
		skip();
	}
	assert_int_equal(err, 0);
	return session;
}

static struct target *target_make(struct session *session, pid_t pid)
{
	struct target *target;

	assert_int_equal(target_new(session, pid, &target), 0);
	assert_null(target_find(session, (uint32_t)pid));
	assert_int_equal(target_announce(session, target, "test", 0, 0, 1), 0);
	assert_ptr_equal(target_find(session, (uint32_t)pid), target);
	return target;
}

/* Children that are forked during the attach follow the target in the list. */
static void one_in_the_middle_is_abandoned(void **state)
{
	struct session *session = session_make();
	pid_t first = child_start(), second = child_start();
	struct target *target = target_make(session, first);

	(void)state;
	target_make(session, second);
	target_abandon(session, target);
	assert_int_equal(session_running(session), 1);
	assert_false(session_has(session, first));
	assert_true(session_has(session, second));
	session_targets_bury(session);
	assert_int_equal(session->count, 1);
	assert_true(session_has(session, second));
	child_end(first);
	child_end(second);
	session_targets_bury(session);
	assert_int_equal(session->count, 0);
	session_free(session);
}

/* A target without any record leaves nothing behind. */
static void one_that_has_not_begun_is_abandoned(void **state)
{
	struct session *session = session_make();
	pid_t first = child_start(), second = child_start();
	struct target *target;

	(void)state;
	target_make(session, first);
	assert_int_equal(target_new(session, second, &target), 0);
	target_abandon(session, target);
	assert_int_equal(session->count, 1);
	assert_int_equal(trace_process_count(session_trace(session)), 1);
	child_end(first);
	child_end(second);
	session_free(session);
}

/*
 * The PID may belong to another process by the time the target is abandoned: the new target stays.
 */
static void the_next_one_with_its_number_stays(void **state)
{
	struct session *session = session_make();
	pid_t child = child_start();
	struct target *target = target_make(session, child), *next;

	(void)state;
	target_end(session, target, EVENT_EXEC);
	next = target_make(session, child);
	target_abandon(session, target);
	assert_ptr_equal(target_find(session, (uint32_t)child), next);
	session_targets_bury(session);
	assert_int_equal(session->count, 1);
	assert_ptr_equal(target_find(session, (uint32_t)child), next);
	assert_true(session_process_running(session, next->index));
	child_end(child);
	session_free(session);
}

/*
 * The probes may handle an exec before its record is drained: only the previous program is removed
 * from the targets.
 */
static void the_next_program_stays_a_target(void **state)
{
	struct session *session = session_make();
	pid_t child = child_start();
	struct target *target = target_make(session, child);
	struct abi_target next = {.space_id = ABI_SPACE_GIVEN | 7,
				  .layers = 1u << EVENT_LAYER_NATIVE};

	(void)state;
	target->runtime.target.space_id = 1;
	assert_int_equal(attach_target(session->attach, (uint32_t)child, &target->runtime.target),
			 0);
	assert_int_equal(attach_target(session->attach, (uint32_t)child, &target->runtime.target),
			 0);
	assert_int_equal(attach_target(session->attach, (uint32_t)child, &next), -ESRCH);
	assert_true(attach_is_target(session->attach, (uint32_t)child, 1));
	attach_forget(session->attach, (uint32_t)child, 1);
	assert_false(attach_is_target(session->attach, (uint32_t)child, 1));
	assert_int_equal(attach_target(session->attach, (uint32_t)child, &next), 0);
	target_abandon(session, target);
	assert_true(attach_is_target(session->attach, (uint32_t)child, next.space_id));
	child_end(child);
	session_free(session);
}

/* A program appears under the PID of a target: the record of that target's end was lost. */
static void what_appears_ends_the_program_before(void **state)
{
	struct session *session = session_make();
	pid_t child = child_start();
	const struct event_appear appear = {.header = {.type = EVENT_APPEAR,
						       .size = sizeof(appear),
						       .time_ns = 2,
						       .tgid = (uint32_t)child,
						       .tid = (uint32_t)child}};
	struct target *target = target_make(session, child);

	(void)state;
	assert_int_equal(attach_target(session->attach, (uint32_t)child, &target->runtime.target),
			 0);
	assert_int_equal(follow_takes(session, &appear), 1);
	assert_false(session_has(session, child));
	assert_false(attach_is_target(session->attach, (uint32_t)child, 0));
	assert_non_null(candidate_find(session, (uint32_t)child));
	child_end(child);
	session_free(session);
}

/*
 * A process that no longer has memory cannot be planned: it is reported as gone, and nothing else.
 */
static void a_zombie_has_no_plan(void **state)
{
	const struct plan_target_opts opts = {.layers = 1u << EVENT_LAYER_NATIVE};
	struct plan_caches caches = {0};
	struct plan_target target;
	pid_t child = child_start();
	siginfo_t info;

	(void)state;
	assert_int_equal(plan_caches_new(&caches, &opts), 0);
	kill(child, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(plan_target(child, &opts, &caches, &target), -ESRCH);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(plan_target(child, &opts, &caches, &target), -ESRCH);
	plan_caches_free(&caches);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_in_the_middle_is_abandoned),
		cmocka_unit_test(one_that_has_not_begun_is_abandoned),
		cmocka_unit_test(the_next_one_with_its_number_stays),
		cmocka_unit_test(the_next_program_stays_a_target),
		cmocka_unit_test(what_appears_ends_the_program_before),
		cmocka_unit_test(a_zombie_has_no_plan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
