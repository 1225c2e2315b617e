/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of /proc/PID/cgroup as real runtimes and drivers write them, and cgroups as users name
 * them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proc/container/cgroup.h"
#include "proc/process.h"
#include "util/error.h"

#define ID_A   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID_B   "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define POD    "6f1a3c52-1c5e-4f6a-9f6b-0123456789ab"
#define POD_   "6f1a3c52_1c5e_4f6a_9f6b_0123456789ab"
#define DOCKER CONTAINER_RUNTIME_DOCKER
#define PODMAN CONTAINER_RUNTIME_PODMAN
#define NERD   CONTAINER_RUNTIME_CONTAINERD
#define CRIO   CONTAINER_RUNTIME_CRIO

static const struct {
	const char *path;
	enum container_runtime runtime;
	const char *id, *pod, *own; /* own: the container's cgroup, NULL: the whole path */
} path_cases[] = {
	/* Docker: cgroupfs and systemd, one inside another, cgroups below its own */
	{"/docker/" ID_A, DOCKER, ID_A, "", NULL},
	{"/system.slice/docker-" ID_A ".scope", DOCKER, ID_A, "", NULL},
	{"/docker/" ID_A "/docker/" ID_B, DOCKER, ID_B, "", NULL},
	{"/system.slice/docker-" ID_A ".scope/init.scope", DOCKER, ID_A, "",
	 "/system.slice/docker-" ID_A ".scope"},
	{"/custom.slice/docker-" ID_A ".scope", DOCKER, ID_A, "", NULL},
	{"/custom/" ID_A, CONTAINER_RUNTIME_UNKNOWN, ID_A, "", NULL},
	/* seen from another cgroup namespace */
	{"/../docker/" ID_A, DOCKER, ID_A, "", NULL},
	/* Podman: root's, a user's, split, in a systemd unit */
	{"/machine.slice/libpod-" ID_A ".scope", PODMAN, ID_A, "", NULL},
	{"/machine.slice/libpod-" ID_A ".scope/container", PODMAN, ID_A, "",
	 "/machine.slice/libpod-" ID_A ".scope"},
	{"/libpod_parent/libpod-" ID_A, PODMAN, ID_A, "", NULL},
	{"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID_A ".scope", PODMAN,
	 ID_A, "", NULL},
	{"/system.slice/web.service/libpod-payload-" ID_A, PODMAN, ID_A, "", NULL},
	{"/machine.slice/libpod-conmon-" ID_A ".scope", 0, NULL, NULL, NULL},
	/* containerd: nerdctl, and Kubernetes with either driver */
	{"/default/" ID_A, CONTAINER_RUNTIME_UNKNOWN, ID_A, "", NULL},
	{"/system.slice/nerdctl-" ID_A ".scope", NERD, ID_A, "", NULL},
	{"/kubepods/burstable/pod" POD "/" ID_B, CONTAINER_RUNTIME_UNKNOWN, ID_B, POD, NULL},
	{"/kubepods/pod" POD "/" ID_B, CONTAINER_RUNTIME_UNKNOWN, ID_B, POD, NULL},
	{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" POD_
	 ".slice/cri-containerd-" ID_B ".scope",
	 NERD, ID_B, POD, NULL},
	{"/system.slice/containerd.service/kubepods-burstable-pod" POD_
	 ".slice:cri-containerd:" ID_B,
	 NERD, ID_B, POD, NULL},
	/* CRI-O */
	{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD_ ".slice/crio-" ID_B
	 ".scope",
	 CRIO, ID_B, POD, NULL},
	{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD_
	 ".slice/crio-conmon-" ID_B ".scope",
	 0, NULL, NULL, NULL},
	{"/kubepods/besteffort/pod" POD "/crio-" ID_B, CRIO, ID_B, POD, NULL},
	/* not a container's */
	{"/", 0, NULL, NULL, NULL},
	{"", 0, NULL, NULL, NULL},
	{"/user.slice/user-0.slice/session-1.scope", 0, NULL, NULL, NULL},
	{"/" ID_A "0", 0, NULL, NULL, NULL}, /* 65 digits are not an ID */
	{"/0" ID_A, 0, NULL, NULL, NULL},
	{"/docker/" ID_A ".service", 0, NULL, NULL, NULL},
	{"/docker/x" ID_A, 0, NULL, NULL, NULL},
	{"/docker/.scope", 0, NULL, NULL, NULL},
	{"/docker/0123456789abcdef", 0, NULL, NULL, NULL},
};

static void paths(void **state)
{
	struct cgroup_container found;

	(void)state;
	for (size_t i = 0; i < sizeof(path_cases) / sizeof(path_cases[0]); i++) {
		const char *path = path_cases[i].path,
			   *own = path_cases[i].own ? path_cases[i].own : path;

		memset(&found, 0xff, sizeof(found));
		if (!path_cases[i].id) {
			assert_int_equal(cgroup_container_parse(path, strlen(path), &found), 0);
			continue;
		}
		assert_int_equal(cgroup_container_parse(path, strlen(path), &found), 1);
		assert_int_equal(found.runtime, path_cases[i].runtime);
		assert_string_equal(found.id, path_cases[i].id);
		assert_string_equal(found.pod_uid, path_cases[i].pod);
		assert_int_equal(found.path_bytes, strlen(own));
	}
}

static void lines(void **state)
{
	static const char text[] =
		"12:cpu,cpuacct:/a:b\nrubbish\n1:name=systemd:relative\n::\n0::/x";
	const char *next = text;
	struct cgroup_line line;

	(void)state;
	assert_int_equal(cgroup_next(&next, &line), 1);
	assert_int_equal(line.controllers_bytes, 11);
	assert_memory_equal(line.controllers, "cpu,cpuacct", 11);
	assert_int_equal(line.path_bytes, 4);
	assert_memory_equal(line.path, "/a:b", 4);
	assert_int_equal(cgroup_next(&next, &line), 1);
	assert_int_equal(line.controllers_bytes, 0);
	assert_int_equal(line.path_bytes, 2);
	assert_int_equal(cgroup_next(&next, &line), 0);
}

/* v1, v2 and hybrid hosts: which line names the container, and which processes the cgroup holds. */
static void hierarchies(void **state)
{
	static const char v1[] = "3:memory:/docker/" ID_A "\n2:cpu,cpuacct:/docker/" ID_A
				 "\n1:name=systemd:/docker/" ID_A "\n";
	static const char v2[] = "0::/system.slice/docker-" ID_A ".scope\n";
	static const char hybrid[] = "2:memory:/docker/" ID_A "\n1:name=systemd:/docker/" ID_A
				     "\n0::/system.slice/containerd.service\n";
	static const char both[] = "1:name=systemd:/docker/" ID_A "\n0::/docker/" ID_A "/below\n";
	struct cgroup_ref ref = {0};
	struct cgroup_container found;
	struct cgroup_line line;
	size_t bytes;

	(void)state;
	assert_int_equal(cgroup_container_find(v1, &found, &line), 1);
	assert_memory_equal(line.controllers, "memory", 6);
	assert_int_equal(cgroup_container_find(hybrid, &found, NULL), 1);
	assert_string_equal(found.id, ID_A);

	assert_int_equal(cgroup_id_find(hybrid, ID_A, &line, &bytes), 1);
	assert_int_equal(cgroup_ref_set(&ref, &line, bytes), 0);
	assert_string_equal(ref.controllers, "memory");
	assert_true(cgroup_ref_holds(&ref, hybrid));
	assert_true(cgroup_ref_holds(&ref, v1));
	assert_false(cgroup_ref_holds(&ref, v2)); /* another hierarchy */
	assert_false(cgroup_ref_holds(&ref, ""));

	/* v2's line if it names the container, without the part below the container */
	assert_int_equal(cgroup_id_find(both, ID_A, &line, &bytes), 1);
	assert_int_equal(cgroup_ref_set(&ref, &line, bytes), 0);
	assert_string_equal(ref.controllers, "");
	assert_string_equal(ref.path, "/docker/" ID_A);
	assert_true(cgroup_ref_holds(&ref, both));
	assert_true(cgroup_ref_holds(&ref, "0::/docker/" ID_A "\n"));
	assert_false(cgroup_ref_holds(&ref, "0::/docker/" ID_A "0\n"));
	assert_false(cgroup_ref_holds(&ref, "0::/docker\n"));
	cgroup_ref_free(&ref);
}

/* containerd's ids may be any word. */
static void free_ids(void **state)
{
	struct cgroup_line line;
	size_t bytes;

	(void)state;
	assert_int_equal(cgroup_id_find("0::/default/job-1\n", "job-1", &line, &bytes), 1);
	assert_int_equal(bytes, strlen("/default/job-1"));
	assert_int_equal(
		cgroup_id_find("0::/x.slice/nerdctl-job-1.scope/y\n", "job-1", &line, &bytes), 1);
	assert_int_equal(bytes, strlen("/x.slice/nerdctl-job-1.scope"));
	assert_int_equal(cgroup_id_find("0::/a:b:job-1\n", "job-1", &line, &bytes), 1);
	assert_int_equal(cgroup_id_find("0::/default/job-10\n", "job-1", &line, &bytes), 0);
	assert_int_equal(cgroup_id_find("0::/default/ajob-1\n", "job-1", &line, &bytes), 0);
	assert_int_equal(cgroup_id_find("0::/job-1x.scope\n", "job-1", &line, &bytes), 0);
	assert_int_equal(cgroup_id_find("0::/\n", "", &line, &bytes), 0);
}

/*
 * The test's own cgroup, by its directory, if this machine shows it. The root of any hierarchy
 * holds every process.
 */
static void opened(void **state)
{
	struct cgroup_ref ref = {0};
	struct buffer text = {0};

	(void)state;
	assert_int_equal(cgroup_ref_open(&ref, "/etc"), -ENOTDIR);
	assert_int_equal(cgroup_ref_open(&ref, "/no/such/cgroup"), -ENOENT);
	assert_int_equal(cgroup_ref_open(&ref, "no such cgroup"), -ENOENT);
	assert_int_equal(cgroup_ref_open(&ref, "../../../etc"), -ENOENT);
	assert_null(ref.path);
	assert_int_equal(process_file_read(getpid(), "mountinfo", 1u << 20, &text), 0);
	if (!strstr((const char *)text.data, " - cgroup")) {
		assert_int_equal(cgroup_ref_open(&ref, "/"), -ENOTDIR);
	} else {
		assert_int_equal(cgroup_ref_open(&ref, "/"), 0);
		assert_int_equal(process_file_read(getpid(), "cgroup", CGROUP_TEXT_MAX, &text), 0);
		assert_string_equal(ref.path, "/");
		assert_true(cgroup_ref_holds(&ref, (const char *)text.data));
		assert_true(ref.controllers[0] || ref.id);
	}
	buffer_free(&text);
	cgroup_ref_free(&ref);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths),    cmocka_unit_test(lines),  cmocka_unit_test(hierarchies),
		cmocka_unit_test(free_ids), cmocka_unit_test(opened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
