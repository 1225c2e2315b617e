/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/target.h"
#include "attach/links/link_keeper.h"
#include "attach/links/link_trial.h"
#include "proc/own_function.h"

#define NOP 0x90 /* the first byte of place() */

#define STORAGE_TOO_LARGE (1u << 20) /* more than any kernel's task storage holds (U16_MAX) */

static void privileges_need(int answer)
{
	if (answer == -EPERM || answer == -EACCES) {
		printf("it takes root to link programs\n");
		skip();
	}
}

/* Sessions are newer than links for many probes: a kernel that has the former has the latter. */
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

/* The probed function, which is never called. */
__attribute__((naked, noinline, used)) static void place(void)
{
	asm volatile("nop; ret");
}

static int is_probed(void)
{
	return *(volatile uint8_t *)(uintptr_t)place != NOP;
}

/* Probes place() of a process. 0, -errno. */
static int place_probe(struct link_keeper *holder, pid_t pid, uint32_t *group)
{
	struct links_spec spec = {
		.backend = LINKS_MULTI, .kind = LINKS_ENTRY, .pid = pid, .sites = {.count = 1}};
	uint64_t offset, cookie = 0;
	char path[OWN_FUNCTION_PATH];
	size_t made = 0;
	int err = own_function_find((uintptr_t)place, path, &offset);

	spec.sites.offsets = &offset;
	spec.sites.cookies = &cookie;
	spec.program = link_trial_program(LINKS_ENTRY);
	spec.file = open(path, O_RDONLY | O_CLOEXEC);
	if (!err)
		err = link_keeper_add(holder, &spec, group, &made);
	close(spec.program);
	close(spec.file);
	return err ? err : made != 1;
}

static void multi_need(void)
{
	int multi = link_trial(LINKS_ENTRY);

	privileges_need(multi);
	if (!multi) {
		printf("this kernel has no links of many uprobes\n");
		skip();
	}
}

static void groups_come_and_go(void **state)
{
	struct link_keeper *holder;
	uint32_t first, second;

	(void)state;
	multi_need();
	assert_int_equal(link_keeper_new(&holder), 0);
	assert_int_equal(place_probe(holder, getpid(), &first), 0);
	assert_int_equal(place_probe(holder, getpid(), &second), 0);
	assert_int_equal(link_keeper_count(holder), 2);
	link_keeper_drop(holder, &first, 1, 1, 1);
	assert_int_equal(link_keeper_count(holder), 1);
	assert_true(is_probed());
	link_keeper_drop(holder, &second, 1, 1, 1);
	assert_false(is_probed());
	assert_int_equal(place_probe(holder, getpid(), &first), 0);
	assert_true(is_probed());
	link_keeper_free(holder, -1);
	assert_false(is_probed());
}

/* The reason is the kernel's. The holder of the links keeps running. */
static void refusals_are_reported(void **state)
{
	const uint64_t offset = 0, cookie = 0;
	struct links_spec spec = {.backend = LINKS_MULTI,
				  .program = STDIN_FILENO,
				  .file = STDIN_FILENO,
				  .pid = -1,
				  .sites = {&offset, &cookie, NULL, 1}};
	struct link_keeper *holder;
	uint32_t group;
	size_t made;

	(void)state;
	assert_int_equal(link_keeper_new(&holder), 0);
	assert_true(link_keeper_add(holder, &spec, &group, &made) < 0);
	assert_int_equal(made, 0);
	spec.sites.count = 0;
	assert_int_equal(link_keeper_add(holder, &spec, &group, &made), 0);
	assert_int_equal(link_keeper_check(holder), 0);
	link_keeper_free(holder, -1);
}

static int is_at_end(int fd, int wait_ms)
{
	struct pollfd poll_end = {.fd = fd, .events = POLLIN};

	return poll(&poll_end, 1, wait_ms) == 1 && poll_end.revents & POLLHUP;
}

/*
 * The owner is killed: the probe is removed, although a copy of the owner's descriptors is open
 * elsewhere.
 */
static void it_ends_with_its_owner(void **state)
{
	int said[2], held[2];
	pid_t owner;
	char byte;

	(void)state;
	multi_need();
	assert_int_equal(pipe(said), 0);
	assert_int_equal(pipe(held), 0);
	owner = fork();
	if (!owner) {
		struct link_keeper *holder;
		uint32_t group;

		close(held[0]);
		if (link_keeper_new(&holder) || place_probe(holder, getppid(), &group))
			_exit(1);
		if (!fork()) {
			close(held[1]);
			close(said[1]);
			read(said[0], &byte, 1);
			_exit(0);
		}
		if (write(held[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(held[1]);
	assert_int_equal(read(held[0], &byte, 1), 1);
	assert_true(is_probed());
	kill(owner, SIGKILL);
	assert_int_equal(waitpid(owner, NULL, 0), owner);
	assert_true(is_at_end(held[0], 5000)); /* the holder keeps no inherited descriptor open */
	for (int i = 0; i < 500 && is_probed(); i++)
		usleep(10000);
	assert_false(is_probed());
	close(said[1]);
	close(said[0]);
	close(held[0]);
}

/* The end of a killed holder is reported. */
static void its_end_is_reported(void **state)
{
	struct link_keeper *holder;
	uint32_t group = 0;

	(void)state;
	assert_int_equal(link_keeper_new(&holder), 0);
	assert_int_equal(link_keeper_check(holder), 0);
	kill(link_keeper_pid(holder), SIGKILL);
	waitpid(link_keeper_pid(holder), NULL, 0);
	assert_int_equal(link_keeper_check(holder), -EOWNERDEAD);
	assert_int_equal(link_keeper_confine(holder, 0), -EOWNERDEAD);
	link_keeper_drop(holder, &group, 1, 0, 1);
	link_keeper_free(holder, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(links_are_tried),        cmocka_unit_test(task_storage_is_tried),
		cmocka_unit_test(groups_come_and_go),     cmocka_unit_test(refusals_are_reported),
		cmocka_unit_test(it_ends_with_its_owner), cmocka_unit_test(its_end_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
