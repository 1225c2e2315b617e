/* SPDX-License-Identifier: Apache-2.0 */
/* The container that a user means, and the container that owns a cgroup or a process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container_files.h"
#include "proc/container/container_list.h"
#include "proc/container/state_file.h"
#include "util/error.h"

static void conmon_arguments(void **state)
{
	static const char podman[] =
		"/usr/bin/conmon\0--api-version\0001\0-c\0" ID_B "\0-u\0" ID_B
		"\0-r\0/usr/bin/runc\0-b\0/v/root/vfs-containers/" ID_B
		"/userdata\0-p\0/v/run/vfs-containers/" ID_B
		"/userdata/pidfile\0-n\0db-1\0--exit-command-arg\0-c\0--exit-command-arg\0x";
	static const char crio[] =
		"conmon\0-b\0/run/b\0-c\0" ID_C "\0-n\0k8s_app_web-0_front_uid_0\0-P\0x";
	char pid_file[128], storage[128];
	struct container found = {0};

	(void)state;
	assert_int_equal(
		container_conmon_parse(podman, sizeof(podman), &found, pid_file, storage, 128), 0);
	assert_string_equal(found.id, ID_B);
	assert_string_equal(found.name, "db-1");
	assert_int_equal(found.runtime, CONTAINER_RUNTIME_PODMAN);
	assert_string_equal(storage, "/v/root");
	assert_string_equal(pid_file, "/v/run/vfs-containers/" ID_B "/userdata/pidfile");
	found = (struct container){0};
	assert_int_equal(container_conmon_parse(crio, sizeof(crio), &found, pid_file, storage, 128),
			 0);
	assert_int_equal(found.runtime, CONTAINER_RUNTIME_CRIO);
	assert_string_equal(found.pod, "web-0");
	assert_string_equal(storage, "");
	assert_string_equal(pid_file, "");
	assert_int_equal(container_conmon_parse("conmon\0-c", 10, &found, pid_file, storage, 128),
			 -EINVAL);
	assert_int_equal(
		container_conmon_parse("conmon\0-c\0../x", 15, &found, pid_file, storage, 128),
		-EINVAL);
	assert_int_equal(
		container_conmon_parse(podman, sizeof(podman), &found, pid_file, storage, 16),
		-EINVAL);
}

/* --- names as users type them ----------------------------------------------------------------- */

static const struct container running[] = {
	{.id = ID_A, .name = "web-1", .runtime = CONTAINER_RUNTIME_DOCKER, .init_pid = 1},
	{.id = ID_B, .name = "web-10", .runtime = CONTAINER_RUNTIME_PODMAN, .init_pid = 1},
	{.id = "job-1", .name = "job-1", .namespace = "default", .init_pid = 1},
	{.id = "job-1", .name = "job-1", .namespace = "other", .init_pid = 1},
	{.id = ID_C, .name = "app", .pod = "shop-0", .pod_namespace = "front", .init_pid = 1},
	{.id = "c1", .name = "side", .pod = "shop-0", .pod_namespace = "front", .init_pid = 1},
	{.id = "c2", .pod = "shop-0", .pod_namespace = "front", .sandbox = 1, .init_pid = 1},
	{.id = "c3", .name = "app", .pod = "shop-1", .pod_namespace = "front", .init_pid = 1},
	{.id = "c4", .name = "app", .pod = "shop-0", .pod_namespace = "back", .init_pid = 1},
	{.id = "d1", .name = "old", .runtime = CONTAINER_RUNTIME_DOCKER},
	{.id = "d2", .name = "fe0b", .init_pid = 1},
};

/*
 * Checks that the choice has the expected result. If one is chosen, the caller frees
 * choice.entries.
 */
static int chosen(const struct container_list *list, const char *text, int expected,
		  struct container_choice *choice)
{
	int err = container_choose(list, text, 0, choice);

	if (err != expected)
		print_message("%s: %d (%s)\n", text, err, error_reason(err));
	assert_int_equal(err, expected);
	return !err;
}

static void choices(void **state)
{
	static const struct {
		const char *text;
		int err;
		size_t count, first; /* first: its index in running */
		int exact;
	} cases[] = {
		{"web-1", 0, 1, 0, 1},
		{"web-10", 0, 1, 1, 1},
		{"web", -EEXIST, 0, 0, 0},
		{"web-2", -ENOENT, 0, 0, 0},
		{ID_A, 0, 1, 0, 1},
		{"fe0b56", 0, 1, 0, 0},
		{"fe0b", 0, 1, 10, 1}, /* a whole name takes precedence over the start of an ID */
		{"f", -EEXIST, 0, 0, 0},
		{"job-1", -EEXIST, 0, 0, 0},
		{"default/job-1", 0, 1, 2, 1},
		{"other/job-1", 0, 1, 3, 1},
		{"app", -EEXIST, 0, 0, 0},
		{"side", 0, 1, 5, 1},
		{"shop-1/app", 0, 1, 7, 1},
		{"shop-0/app", -EEXIST, 0, 0, 0},
		{"front/shop-0/app", 0, 1, 4, 1},
		{"back/shop-0/a", 0, 1, 8, 0},
		{"pod/shop-1", 0, 1, 7, 1},
		{"pod/shop-0", -EEXIST, 0, 0, 0},
		{"pod/front/shop-0", 0, 2, 4, 1},
		{"pod/shop", -EEXIST, 0, 0, 0},
		{"pod/back/shop", 0, 1, 8, 0},
		{"c2", 0, 1, 6, 1}, /* a sandbox by its ID alone */
		{"old", -ENOENT, 0, 0, 0},
		{"", -ENOENT, 0, 0, 0},
		{"/", -ENOENT, 0, 0, 0},
		{"a//b", -ENOENT, 0, 0, 0},
		{"a/b/c/d", -ENOENT, 0, 0, 0},
		{"pod/", -ENOENT, 0, 0, 0},
	};
	struct container entries[sizeof(running) / sizeof(running[0])];
	struct container_list list = {.entries = entries,
				      .count = sizeof(running) / sizeof(running[0])};
	struct container_choice choice;

	(void)state;
	memcpy(entries, running, sizeof(entries));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!chosen(&list, cases[i].text, cases[i].err, &choice))
			continue;
		assert_int_equal(choice.count, cases[i].count);
		assert_ptr_equal(choice.entries[0], &entries[cases[i].first]);
		assert_int_equal(choice.exact, cases[i].exact);
		free(choice.entries);
	}
	/* When the session waits for a name, the name must be complete; a prefix does not match. */
	assert_int_equal(container_choose(&list, "web", 1, &choice), -ENOENT);
	assert_int_equal(container_choose(&list, "back/shop-0/a", 1, &choice), -ENOENT);
	assert_int_equal(container_choose(&list, "fe0b56", 1, &choice), 0);
	free(choice.entries);
}

/* The same name or ID claimed by several users: whose claim counts, and which are never chosen. */
static void owners(void **state)
{
	static char path[] = "/user/x";
	static const struct container said[] = {
		{.id = ID_A, .name = "web-1", .init_pid = 1},
		{.id = "web-1", .name = "x", .owner.uid = 7, .init_pid = 1}, /* a claimed ID */
		{.id = "c1", .name = "db-1", .init_pid = 1},
		{.id = "c2", .name = "db-1", .owner.uid = 7, .init_pid = 1},
		{.id = "c3", .name = "old"}, /* not running */
		{.id = "c4", .name = "old", .owner.uid = 7, .init_pid = 1},
		{.id = "c5", .name = "his", .owner.uid = 7, .init_pid = 1},
		{.id = "c6",
		 .name = "his",
		 .owner.uid = 8}, /* another user's stopped container is ignored */
		{.id = ID_B, .name = "y", .owner.uid = 7, .cgroup.path = path, .init_pid = 1},
		/* its name is the ID of another */
		{.id = "c7", .name = ID_B, .owner.uid = 8, .init_pid = 1},
		{.id = ID_C, .name = "z", .owner.uid = 7, .cgroup.path = path, .init_pid = 1},
		{.id = ID_C, .name = "z", .cgroup.path = path, .init_pid = 1},
		{.id = "c8", .name = "in", .init_pid = 1},
		{.id = "c9", .name = "in", .owner.inside = ID_A, .init_pid = 1},
	};
	static const struct {
		const char *text;
		int err;
		size_t first;
	} cases[] = {{"web-1", 0, 0},     {"db-1", -EEXIST, 0}, {"c2", 0, 3},
		     {"old", -EEXIST, 0}, {"his", 0, 6},        {ID_B, -EEXIST, 0},
		     {ID_C, -EEXIST, 0},  {"z", -EEXIST, 0},    {"in", -EEXIST, 0},
		     {"x", 0, 1}};
	struct container entries[sizeof(said) / sizeof(said[0])];
	struct container_list list = {.entries = entries, .count = sizeof(said) / sizeof(said[0])};
	struct container_choice choice;

	(void)state;
	memcpy(entries, said, sizeof(said));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!chosen(&list, cases[i].text, cases[i].err, &choice))
			continue;
		assert_ptr_equal(choice.entries[0], &entries[cases[i].first]);
		free(choice.entries);
	}
	assert_int_equal(container_choose(&list, "old", 0, &choice), -EEXIST);
	assert_non_null(
		strstr(error_reason(-EEXIST), "old (c4 of user 7), old (c3, does not run)"));
}

/* A cgroup belongs to any user who could create it, and to the container that contains it. */
static void cgroup_owners(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {0};
	struct container_owner owner;
	struct cgroup_line line = {.controllers = ""};
	char path[256], text[512];

	put(folder, "slice/docker-" ID_A ".scope/" ID_B "/x", "");
	snprintf(text, sizeof(text), "1 0 0:1 / %s rw - cgroup2 none rw\n", folder->path);
	assert_int_equal(buffer_append(&list.mounts, text, strlen(text) + 1), 0);
	snprintf(path, sizeof(path), "/slice/docker-" ID_A ".scope/" ID_B);
	line.path = path;
	line.path_bytes = strlen(path);
	container_owner_of_cgroup(&list, &line, line.path_bytes, &owner);
	assert_int_equal(owner.uid, geteuid());
	assert_string_equal(owner.inside, ID_A);
	strcpy(list.own, ID_A);
	container_owner_of_cgroup(&list, &line, line.path_bytes, &owner);
	assert_string_equal(owner.inside, "");
	if (!geteuid()) {
		assert_int_equal(fchownat(folder->fd, "slice", 7, 7, 0), 0);
		container_owner_of_cgroup(&list, &line, strlen("/slice/docker-" ID_A ".scope"),
					  &owner);
		assert_int_equal(owner.uid, 7);
	}
	line.path = "/../../docker/" ID_A; /* outside our namespace: not accessible */
	container_owner_of_cgroup(&list, &line, strlen(line.path), &owner);
	assert_int_equal(owner.uid, 0);
	container_list_free(&list);
}

/* A set-user-ID program is not a monitor, whatever its name is. This process is one. */
static void process_owners(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {0};
	struct container_owner owner;
	struct process_info info;
	char path[96], command[256];
	int ready[2], status;
	pid_t child;

	assert_int_equal(process_info_read(getpid(), &info), 0);
	assert_int_equal(container_owner_of_process(&list, &info, "0::/docker/" ID_A "\n", &owner),
			 1);
	assert_int_equal(owner.uid, geteuid());
	assert_string_equal(owner.inside, ID_A);
	info.uids_differ = 1;
	assert_int_equal(container_owner_of_process(&list, &info, "0::/\n", &owner), 0);

	snprintf(path, sizeof(path), "%s/conmon", folder->path);
	snprintf(command, sizeof(command), "cp /bin/sleep %s && chmod 4755 %s", path, path);
	assert_int_equal(system(command), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (!child) {
		execl(path, path, "100", NULL);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], path, 1), 0); /* closed by exec */
	close(ready[0]);
	assert_int_equal(process_info_read(child, &info), 0);
	assert_string_equal(info.name, "conmon");
	assert_int_equal(container_owner_of_process(&list, &info, "0::/\n", &owner), 0);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}

/* Error messages list the names with the same prefix first, and count those that do not fit. */
static void reasons(void **state)
{
	struct container entries[40] = {0};
	struct container_list list = {.entries = entries, .count = 40};
	struct container_choice choice;

	(void)state;
	for (int i = 0; i < 40; i++) {
		snprintf(entries[i].id, CONTAINER_ID_SIZE, "%02d56ec3c688e9354c9", i);
		snprintf(entries[i].name, CONTAINER_NAME_SIZE, i < 38 ? "db-%d" : "web-%d", i);
		entries[i].runtime = CONTAINER_RUNTIME_DOCKER;
		entries[i].init_pid = 1;
	}
	assert_int_equal(container_choose(&list, "web-1", 0, &choice), -ENOENT);
	assert_non_null(strstr(error_reason(-ENOENT),
			       "running: web-38 (docker 3856ec3c688e), web-39 (docker "));
	assert_non_null(strstr(error_reason(-ENOENT), " more"));
	assert_int_equal(container_choose(&list, "db", 0, &choice), -EEXIST);
	assert_non_null(strstr(error_reason(-EEXIST),
			       "matches 38 containers: db-0 (docker 0056ec3c688e), db-1 "));
	memset(entries[0].name, 'x', CONTAINER_NAME_SIZE - 1);
	list.count = 1;
	assert_int_equal(container_choose(&list, "web-1", 0, &choice), -ENOENT);
	assert_non_null(strstr(error_reason(-ENOENT), "running: 1 not listed"));
	entries[0].init_pid = 0;
	assert_int_equal(container_choose(&list, entries[0].id, 0, &choice), -ENOENT);
	assert_non_null(strstr(error_reason(-ENOENT), "does not run"));
	list.count = 0;
	assert_int_equal(container_choose(&list, "web-1", 0, &choice), -ENOENT);
	assert_non_null(strstr(error_reason(-ENOENT), "no container is running"));
	container_list_caveat(&list, "Docker's socket %s is silent", "/x");
	assert_int_equal(container_choose(&list, "web-1", 0, &choice), -ENOENT);
	assert_non_null(strstr(error_reason(-ENOENT), "Docker's socket /x is silent"));
}

/*
 * An entry that is added later fills in missing fields. An init process that is not the container's
 * is ignored.
 */
static void merging(void **state)
{
	struct container_list list = {0};
	struct container first = {.id = ID_A},
			 second = {.id = ID_A, .name = "web-1", .init_pid = getpid()};
	struct container third = {.id = ID_A,
				  .name = "old",
				  .runtime = CONTAINER_RUNTIME_DOCKER,
				  .namespace = "moby"};

	(void)state;
	assert_int_equal(container_list_add(&list, &first), 0);
	assert_int_equal(container_list_add(&list, &second), 0);
	assert_int_equal(container_list_add(&list, &third), 0);
	assert_int_equal(list.count, 1);
	assert_string_equal(list.entries[0].name, "web-1");
	assert_string_equal(list.entries[0].namespace, "moby");
	assert_int_equal(list.entries[0].runtime, CONTAINER_RUNTIME_DOCKER);
	assert_int_equal(list.entries[0].init_pid, 0);
	container_list_free(&list);
}

static void this_machine(void **state)
{
	struct container_list list;

	(void)state;
	assert_int_equal(container_list_read(&list), 0);
	for (size_t i = 0; i < list.count; i++)
		assert_true(container_id_is_valid(list.entries[i].id));
	container_of(&list, getpid());
	assert_null(container_of(&list, 1 << 30));
	container_list_free(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(conmon_arguments),
		cmocka_unit_test(choices),
		cmocka_unit_test(owners),
		cmocka_unit_test_setup_teardown(cgroup_owners, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(process_owners, folder_make, folder_remove),
		cmocka_unit_test(reasons),
		cmocka_unit_test(merging),
		cmocka_unit_test(this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
