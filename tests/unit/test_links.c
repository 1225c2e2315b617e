/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/target.h"
#include "probe/link_trial.h"
#include "probe/links_closer.h"

#define STORAGE_TOO_LARGE (1u << 20) /* no kernel's task storage has that much (U16_MAX) */

static void privileges_need(int answer)
{
	if (answer == -EPERM || answer == -EACCES) {
		printf("it takes root to link programs\n");
		skip();
	}
}

/* Sessions came later than links for many probes: a kernel that has the former has the latter. */
static void links_are_tried(void **state)
{
	int multi = link_trial(LINKS_ENTRY), session = link_trial(LINKS_BOTH);

	(void)state;
	privileges_need(multi);
	assert_true(multi == 0 || multi == 1);
	assert_true(session == 0 || session == 1);
	assert_true(multi >= session);
}

static void task_storage_is_tried(void **state)
{
	int small = task_storage_trial(64);

	(void)state;
	privileges_need(small);
	if (!small) {
		printf("this kernel and processor have no task storage\n");
		skip();
	}
	assert_int_equal(task_storage_trial(TASK_STATE_MAX), 1);
	assert_int_equal(task_storage_trial(STORAGE_TOO_LARGE), 0);
}

static int is_at_end(int fd, int wait_ms)
{
	struct pollfd poll_end = {.fd = fd, .events = POLLIN};

	return poll(&poll_end, 1, wait_ms) == 1 && poll_end.revents & POLLHUP;
}

/* What we close lives on in a child, until we say so: the end of a pipe tells. */
static void links_live_on(void **state)
{
	int ends[2], other[2], left = -1;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(other), 0);
	assert_int_equal(links_leave_begin(&ends[1], 1, &left), 0);
	close(ends[1]);
	close(other[1]);
	assert_true(is_at_end(other[0], 5000)); /* it holds nothing else */
	assert_false(is_at_end(ends[0], 100));
	links_leave_end(left);
	assert_true(is_at_end(ends[0], 5000));
	close(ends[0]);
	close(other[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(links_are_tried),
		cmocka_unit_test(task_storage_is_tried),
		cmocka_unit_test(links_live_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
