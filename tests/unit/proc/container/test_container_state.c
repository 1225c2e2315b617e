/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state files of Docker 20.10, Podman 4.3, containerd 1.6 and Kubernetes 1.2x (shortened),
 * and hostile variants of them.
 */
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
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container_files.h"
#include "proc/container/container_list.h"
#include "proc/container/state_file.h"
#include "util/buffer.h"

static const char docker_config[] =
	"{\"StreamConfig\":{},\"State\":{\"Running\":true,\"Paused\":false,"
	"\"Pid\":6145,\"ExitCode\":0},"
	"\"ID\":\"" ID_A
	"\",\"Created\":\"2026-11-21T08:05:34.747947186Z\",\"Path\":\"/bin/pause\",\"Args\":[],"
	"\"Config\":{\"Hostname\":\"fe0b56ec3c68\",\"Env\":null,\"Labels\":{}},\"Name\":\"/"
	"web-1\",\"Driver\":\"vfs\"}";
static const char docker_kubernetes[] =
	"{\"State\":{\"Running\":false,\"Pid\":0},\"ID\":\"" ID_B "\",\"Config\":{\"Labels\":{"
	"\"io.kubernetes.container.name\":\"app\",\"io.kubernetes.docker.type\":\"container\","
	"\"io.kubernetes.pod.name\":\"web-0\",\"io.kubernetes.pod.namespace\":\"front\"}},"
	"\"Name\":\"/k8s_app_web-0_front_6f1a3c52-1c5e-4f6a-9f6b-0123456789ab_2\"}";
static const char docker_answer[] =
	"HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\n\r\n"
	"[{\"Id\":\"" ID_A
	"\",\"Names\":[\"/web-1\"],\"Image\":\"pause\",\"State\":\"running\",\"Labels\":{}},"
	"{\"Id\":\"" ID_B "\",\"Names\":[\"/k8s_POD_web-0_front_uid_0\"],\"Labels\":{}}]";
static const char podman_index[] =
	"[{\"id\":\"" ID_B
	"\",\"names\":[\"db-1\"],\"image\":\"418105eb71f4\",\"layer\":\"8ed12d83ab20\","
	"\"metadata\":\"{\\\"image-name\\\":\\\"localhost/pause:latest\\\","
	"\\\"name\\\":\\\"db-1\\\"}\","
	"\"created\":\"2026-11-21T08:06:16.20755606Z\","
	"\"flags\":{\"MountLabel\":\"\",\"ProcessLabel\":\"\"}}"
	","
	"{\"id\":\"" ID_C
	"\",\"names\":[\"k8s_app_web-0_front_6f1a3c52-1c5e-4f6a-9f6b-0123456789ab_0\"]}]";
static const char bundle_kubernetes[] =
	"{\"ociVersion\":\"1.0.2-dev\",\"process\":{\"args\":[\"/bin/pause\"]},\"annotations\":{"
	"\"io.kubernetes.cri.container-name\":\"app\","
	"\"io.kubernetes.cri.container-type\":\"container\","
	"\"io.kubernetes.cri.sandbox-id\":\"x\",\"io.kubernetes.cri.sandbox-name\":\"web-0\","
	"\"io.kubernetes.cri.sandbox-namespace\":\"front\"},"
	"\"linux\":{\"cgroupsPath\":\"/kubepods/x\"}}";
static const char bundle_sandbox[] =
	"{\"annotations\":{\"io.kubernetes.cri.container-type\":\"sandbox\","
	"\"io.kubernetes.cri.sandbox-name\":\"web-0\","
	"\"io.kubernetes.cri.sandbox-namespace\":\"front\"}}";
static const char bundle_nerdctl[] =
	"{\"annotations\":{\"nerdctl/name\":\"mail\",\"nerdctl/namespace\":\"default\"}}";
static const char bundle_plain[] = "{\"ociVersion\":\"1.0.2-dev\",\"root\":{\"path\":\"rootfs\"}}";

static const struct container *get(struct container_list *list, const char *id)
{
	const struct container *found = container_list_find(list, id, "");

	assert_non_null(found);
	return found;
}

/* --- state on disk ---------------------------------------------------------------------------- */

static void docker_state(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.current_owner.uid = geteuid()};

	assert_int_equal(container_docker_root(&list, folder->fd), -ENOENT);
	put(folder, "containers/" ID_A "/config.v2.json", docker_config);
	put(folder, "containers/" ID_B "/config.v2.json", docker_kubernetes);
	put(folder, "containers/" ID_C "/config.v2.json", docker_config); /* of another container */
	put(folder, "containers/.tmp/config.v2.json", docker_config);
	put(folder, "containers/x/config.v2.json", "{\"ID\": \"x\"");
	assert_int_equal(container_docker_root(&list, folder->fd), 0);
	assert_int_equal(list.count, 2);
	assert_string_equal(get(&list, ID_A)->name, "web-1");
	assert_int_equal(get(&list, ID_A)->runtime, CONTAINER_RUNTIME_DOCKER);
	assert_int_equal(get(&list, ID_A)->init_pid, 0); /* no such process, or another's */
	assert_string_equal(get(&list, ID_B)->name, "app");
	assert_string_equal(get(&list, ID_B)->pod, "web-0");
	assert_string_equal(get(&list, ID_B)->pod_namespace, "front");
	container_list_free(&list);
}

static void podman_state(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.current_owner.uid = geteuid()};

	put(folder, "overlay-containers/containers.json", podman_index);
	put(folder, "vfs-containers/volatile-containers.json",
	    "[{\"id\":\"" ID_A "\",\"names\":[\"brief\"]}]");
	put(folder, "overlay-images/containers.json", "[{\"id\":\"x\",\"names\":[\"x\"]}]");
	assert_int_equal(container_podman_storage(&list, folder->fd), 0);
	assert_int_equal(list.count, 3);
	assert_string_equal(get(&list, ID_A)->name, "brief");
	assert_string_equal(get(&list, ID_B)->name, "db-1");
	assert_int_equal(get(&list, ID_B)->runtime, CONTAINER_RUNTIME_PODMAN);
	assert_string_equal(get(&list, ID_C)->pod, "web-0");
	assert_int_equal(get(&list, ID_C)->runtime, CONTAINER_RUNTIME_CRIO);
	container_list_free(&list);
}

static void containerd_state(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.current_owner.uid = geteuid()};

	put(folder, "k8s.io/" ID_A "/config.json", bundle_kubernetes);
	put(folder, "k8s.io/" ID_B "/config.json", bundle_sandbox);
	put(folder, "default/mail-id/config.json", bundle_nerdctl);
	put(folder, "default/job-1/config.json", bundle_plain);
	put(folder, "other/job-1/config.json", bundle_plain);
	put(folder, "moby/" ID_C "/config.json", bundle_plain);
	assert_int_equal(container_containerd_tasks(&list, folder->fd), 0);
	assert_int_equal(list.count, 6);
	assert_string_equal(get(&list, ID_A)->name, "app");
	assert_string_equal(get(&list, ID_A)->pod, "web-0");
	assert_int_equal(get(&list, ID_A)->sandbox, 0);
	assert_int_equal(get(&list, ID_B)->sandbox, 1);
	assert_string_equal(get(&list, "mail-id")->name, "mail");
	assert_non_null(container_list_find(&list, "job-1", "default"));
	assert_non_null(container_list_find(&list, "job-1", "other"));
	assert_ptr_not_equal(container_list_find(&list, "job-1", "default"),
			     container_list_find(&list, "job-1", "other"));
	assert_int_equal(get(&list, ID_C)->runtime, CONTAINER_RUNTIME_DOCKER);
	assert_string_equal(get(&list, ID_C)->name, "");
	container_list_free(&list);
}

static void kubernetes_names(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {0};
	struct container found = {0};

	assert_int_equal(container_kubernetes_name("k8s_app_web-0_front_uid_12", &found), 1);
	assert_string_equal(found.pod, "web-0");
	assert_int_equal(found.sandbox, 0);
	assert_int_equal(container_kubernetes_name("k8s_POD_web-0_front_uid_12", &found), 1);
	assert_int_equal(found.sandbox, 1);
	assert_int_equal(container_kubernetes_name("k8s_app_web-0_front_uid", &found), 0);
	assert_int_equal(container_kubernetes_name("k8s_app_web-0_front_uid_1_2", &found), 0);
	assert_int_equal(container_kubernetes_name("web", &found), 0);
	assert_int_equal(container_kubernetes_name("k8s__web-0_front_uid_1", &found), 0);

	/* Logs are used only for known containers. */
	found = (struct container){.id = ID_A};
	assert_int_equal(container_list_add(&list, &found), 0);
	put(folder, "web-0_front_app-" ID_A ".log", "");
	put(folder, "web-1_front_app-" ID_B ".log", "");
	put(folder, "rubbish.log", "");
	assert_int_equal(container_kubernetes_logs(&list, folder->fd), 0);
	assert_int_equal(list.count, 1);
	assert_string_equal(list.entries[0].pod, "web-0");
	assert_string_equal(list.entries[0].pod_namespace, "front");
	assert_string_equal(list.entries[0].name, "app");
	container_list_free(&list);
	assert_int_equal(container_kubernetes_log("web-0_front-" ID_A ".log", &found), 0);
	assert_int_equal(container_kubernetes_log("web-0_front_app_x-" ID_A ".log", &found), 0);
	assert_int_equal(container_kubernetes_log("web-0_front_app" ID_A ".log", &found), 0);
}

/* --- labels and annotations ------------------------------------------------------------------- */

static bool tagged(struct container_list *list, const char *id, enum container_tag kind,
		   const char *text)
{
	return container_is_tagged(list, get(list, id), kind, text);
}

/* dockershim and cri-dockerd: a pod's labels and annotations are labels of its sandbox. */
static void docker_tags(void **state)
{
	static const char app[] =
		"{\"State\":{\"Running\":false,\"Pid\":0},\"ID\":\"" ID_A
		"\",\"Config\":{\"Labels\":{\"maintainer\":\"us\",\"annotation.io.kubernetes."
		"container.hash\":\"5f9d12ab\",\"io.kubernetes.container.name\":\"app\",\"io."
		"kubernetes.docker.type\":\"container\",\"io.kubernetes.pod.name\":\"web-0\",\"io."
		"kubernetes.pod.namespace\":\"front\"}},\"Name\":\"/k8s_app_web-0_front_uid_2\"}";
	static const char sandbox[] =
		"{\"State\":{\"Running\":false,\"Pid\":0},\"ID\":\"" ID_B
		"\",\"Config\":{\"Labels\":{\"app\":\"shop\",\"annotation.tracer.dev/enabled\":"
		"\"true\",\"io.kubernetes.docker.type\":\"podsandbox\",\"io.kubernetes.pod.name\":"
		"\"web-0\",\"io.kubernetes.pod.namespace\":\"front\"}},"
		"\"Name\":\"/k8s_POD_web-0_front_uid_2\"}";
	struct folder *folder = *state;
	struct container_list list = {.current_owner.uid = geteuid()};

	put(folder, "containers/" ID_A "/config.v2.json", app);
	put(folder, "containers/" ID_B "/config.v2.json", sandbox);
	assert_int_equal(container_docker_root(&list, folder->fd), 0);
	assert_true(tagged(&list, ID_A, CONTAINER_LABEL, "maintainer=us"));
	assert_true(
		tagged(&list, ID_A, CONTAINER_ANNOTATION, "io.kubernetes.container.hash=5f9d12ab"));
	assert_false(tagged(&list, ID_A, CONTAINER_LABEL, "app=shop")); /* no sandbox runs */
	container_list_find(&list, ID_B, "")->init_pid = 1;
	assert_true(tagged(&list, ID_A, CONTAINER_LABEL, "app=shop"));
	assert_true(tagged(&list, ID_A, CONTAINER_LABEL, "app=sh*"));
	assert_true(tagged(&list, ID_A, CONTAINER_LABEL, "app"));
	assert_false(tagged(&list, ID_A, CONTAINER_LABEL, "app=shopping"));
	assert_false(tagged(&list, ID_A, CONTAINER_LABEL, "ap"));
	assert_false(tagged(&list, ID_A, CONTAINER_LABEL, "ap*=shop"));
	assert_false(tagged(&list, ID_A, CONTAINER_ANNOTATION, "app=shop"));
	assert_true(tagged(&list, ID_A, CONTAINER_ANNOTATION, "tracer.dev/enabled=true"));
	/* Another user's sandbox says nothing about it. */
	container_list_find(&list, ID_B, "")->owner.uid++;
	assert_false(tagged(&list, ID_A, CONTAINER_LABEL, "app"));
	container_list_free(&list);
}

/* containerd: annotations that the runtime passes on (pod_annotations), and no labels. */
static void containerd_tags(void **state)
{
	static const char bundle[] =
		"{\"annotations\":{\"io.kubernetes.cri.container-name\":\"app\","
		"\"io.kubernetes.cri.container-type\":\"container\","
		"\"io.kubernetes.cri.sandbox-name\":\"web-0\","
		"\"io.kubernetes.cri.sandbox-namespace\":\"front\","
		"\"io.kubernetes.cri.sandbox-uid\":\"6f1a3c52-1c5e-4f6a-9f6b-0123456789ab\","
		"\"tracer.dev/enabled\":\"true\"}}";
	struct folder *folder = *state;
	struct container_list list = {.current_owner.uid = geteuid()};

	put(folder, "k8s.io/" ID_A "/config.json", bundle);
	assert_int_equal(container_containerd_tasks(&list, folder->fd), 0);
	assert_true(tagged(&list, ID_A, CONTAINER_ANNOTATION, "tracer.dev/enabled=true"));
	assert_true(tagged(&list, ID_A, CONTAINER_ANNOTATION,
			   "io.kubernetes.cri.sandbox-uid=6f1a3c52-*"));
	assert_false(tagged(&list, ID_A, CONTAINER_LABEL, "tracer.dev/enabled"));
	container_list_free(&list);
}

/*
 * CRI-O and Podman: only of containers that run, as this process does, and of sandboxes, which need
 * no process. CRI-O's labels and annotations are JSON texts; a pod's are its sandbox's.
 */
static void podman_tags(void **state)
{
	static const char crio[] =
		"{\"annotations\":{\"io.kubernetes.container.name\":\"app\","
		"\"io.kubernetes.cri-o.ContainerType\":\"container\","
		"\"io.kubernetes.cri-o.Labels\":\"{\\\"io.kubernetes.pod.uid\\\":\\\"6f1a\\\","
		"\\\"io.kubernetes.pod.name\\\":\\\"web-0\\\"}\","
		"\"io.kubernetes.cri-o.Annotations\":\"{\\\"tracer.dev/enabled\\\":\\\"true\\\"}\","
		"\"io.kubernetes.pod.name\":\"web-0\",\"io.kubernetes.pod.namespace\":\"front\"}}";
	static const char sandboxes[] =
		"[{\"id\":\"" ID_A "\",\"names\":[\"k8s_POD_web-0_front_6f1a3c52-1c5e-4f6a-9f6b-"
		"0123456789ab_0\"]}]";
	static const char crio_sandbox[] =
		"{\"annotations\":{\"io.kubernetes.cri-o.ContainerType\":\"sandbox\","
		"\"io.kubernetes.cri-o.Labels\":\"{\\\"app\\\":\\\"shop\\\"}\","
		"\"io.kubernetes.pod.name\":\"web-0\",\"io.kubernetes.pod.namespace\":\"front\"}}";
	static const char podman[] = "{\"annotations\":{\"io.container.manager\":\"libpod\","
				     "\"tracer.dev/enabled\":\"false\"}}";
	struct folder *folder = *state;
	struct container_list list = {.current_owner.uid = geteuid()};

	put(folder, "overlay-containers/containers.json", podman_index);
	put(folder, "overlay-containers/" ID_B "/userdata/config.json", podman);
	put(folder, "overlay-containers/" ID_C "/userdata/config.json", crio);
	put(folder, "overlay-containers/" ID_A "/userdata/config.json", crio_sandbox);
	put(folder, "overlay-containers/volatile-containers.json", sandboxes);
	assert_int_equal(container_podman_storage(&list, folder->fd), 0);
	assert_false(tagged(&list, ID_C, CONTAINER_LABEL, "io.kubernetes.pod.uid"));
	assert_true(tagged(&list, ID_C, CONTAINER_LABEL, "app=shop"));
	container_list_find(&list, ID_B, "")->init_pid = getpid();
	container_list_find(&list, ID_C, "")->init_pid = getpid();
	assert_int_equal(container_podman_storage(&list, folder->fd), 0);
	assert_true(tagged(&list, ID_C, CONTAINER_LABEL, "io.kubernetes.pod.uid=6f1a"));
	assert_true(tagged(&list, ID_C, CONTAINER_ANNOTATION, "tracer.dev/enabled=true"));
	assert_true(tagged(&list, ID_C, CONTAINER_ANNOTATION, "io.kubernetes.pod.namespace"));
	assert_true(tagged(&list, ID_B, CONTAINER_ANNOTATION, "tracer.dev/enabled=false"));
	assert_string_equal(get(&list, ID_B)->pod, "");
	container_list_free(&list);

	/* A link is not followed, out of the container's folder or within it. */
	put(folder, "overlay-containers/other.json", crio);
	assert_int_equal(
		unlinkat(folder->fd, "overlay-containers/" ID_C "/userdata/config.json", 0), 0);
	assert_int_equal(symlinkat("../../other.json", folder->fd,
				   "overlay-containers/" ID_C "/userdata/config.json"),
			 0);
	assert_int_equal(container_podman_storage(&list, folder->fd), 0);
	container_list_find(&list, ID_C, "")->init_pid = getpid();
	assert_int_equal(container_podman_storage(&list, folder->fd), 0);
	assert_false(tagged(&list, ID_C, CONTAINER_ANNOTATION, "tracer.dev/enabled"));
	container_list_free(&list);
}

/* What is kept is bounded, and whatever it is, it is no text of another. */
static void hostile_tags(void **state)
{
	struct buffer tags = {0};
	json_t *labels = json_object(), *annotations;
	struct container_list list = {.count = 1};
	struct container container = {0};
	char text[2000], key[32];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	json_object_set_new(labels, "long", json_string(text));
	json_object_set_new(labels, "app", json_string("shop"));
	json_object_set_new(labels, "number", json_integer(1));
	for (int i = 0; i < 10000; i++) {
		snprintf(key, sizeof(key), "key%d", i);
		json_object_set_new(labels, key, json_string("v"));
	}
	assert_int_equal(container_kubernetes_tags(labels, NULL, &tags), 0);
	assert_in_range(tags.size, 16000, 16384);
	container.tags = tags;
	list.entries = &container;
	assert_true(container_is_tagged(&list, &container, CONTAINER_LABEL, "app=shop"));
	assert_false(container_is_tagged(&list, &container, CONTAINER_LABEL, "long"));
	assert_false(container_is_tagged(&list, &container, CONTAINER_LABEL, "number"));
	assert_false(container_is_tagged(&list, &container, CONTAINER_LABEL, ""));
	buffer_free(&container.tags);
	container.tags = tags = (struct buffer){0};
	json_decref(labels);

	annotations = json_pack("{s:s, s:s, s:[s]}", "io.kubernetes.cri-o.Labels", "[\"app\"]",
				"io.kubernetes.cri-o.Annotations", "{\"a\"", "list", "x");
	assert_int_equal(container_kubernetes_tags(annotations, annotations, &tags), 0);
	container.tags = tags;
	assert_false(container_is_tagged(&list, &container, CONTAINER_LABEL, "app"));
	assert_true(container_is_tagged(&list, &container, CONTAINER_LABEL,
					"io.kubernetes.cri-o.Labels"));
	assert_false(container_is_tagged(&list, &container, CONTAINER_ANNOTATION, "a"));
	buffer_free(&container.tags);
	json_decref(annotations);
	annotations = json_array();
	assert_int_equal(container_kubernetes_tags(annotations, annotations, &tags), 0);
	json_decref(annotations);
}

/* A file of the given size: "[{},{},...]", or an array of one text. */
static void put_large(const struct folder *folder, const char *name, size_t bytes,
		      int empty_objects)
{
	char *text = malloc(bytes + 1);

	for (size_t i = 0; i < bytes; i++)
		text[i] = empty_objects ? "},{"[i % 3] : 'x';
	memcpy(text, empty_objects ? "[{" : "[\"", 2);
	memcpy(text + bytes - 2, empty_objects ? "}]" : "\"]", 2);
	text[bytes] = '\0';
	put(folder, name, text);
	free(text);
}

/*
 * A storage whose indexes have the largest permitted size and are linked many times, and one with
 * many entries. Reading all of it would take gigabytes of memory and minutes. What is left out is
 * reported.
 */
static void large_state(void **state)
{
	enum { DRIVERS = 300, BYTES = 7 << 20 };
	struct folder *folder = *state;
	struct container_list list = {0};
	char name[64];
	json_t *json;
	size_t bytes;

	alarm(60);
	put_large(folder, "values", 3 * (BYTES / 3), 1);
	assert_int_equal(state_json_read(folder->fd, "values", BYTES, &bytes, &json), -EFBIG);
	assert_int_equal(bytes, 3 * (BYTES / 3));
	assert_int_equal(state_json_read(folder->fd, "values", BYTES / 2, &bytes, &json), -EFBIG);
	assert_int_equal(bytes, 0); /* refused because of its size */

	put_large(folder, "text", BYTES, 0);
	for (int i = 0; i < DRIVERS; i++) {
		snprintf(name, sizeof(name), "storage/%d-containers/x", i);
		put(folder, name, "");
		snprintf(name, sizeof(name), "storage/%d-containers/containers.json", i);
		assert_int_equal(linkat(folder->fd, i ? "text" : "values", folder->fd, name, 0), 0);
	}
	int storage = openat(folder->fd, "storage", O_RDONLY | O_DIRECTORY);
	assert_int_equal(container_podman_storage(&list, storage), 0);
	assert_true(list.share_bytes <= 32u << 20);
	assert_true(list.state_bytes == list.share_bytes);
	assert_true(list.state_refused >= DRIVERS - 10);
	assert_non_null(strstr(list.caveat, "beyond the size limit"));
	/* Each runtime has its own share, up to the limit for all of them. */
	for (int i = 0; i < 5; i++) {
		container_state_begin(&list);
		assert_int_equal(container_podman_storage(&list, storage), 0);
	}
	assert_true(list.state_bytes > 56u << 20 && list.state_bytes <= 64u << 20);
	close(storage);

	json = json_array();
	for (int i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		json_array_append_new(json, json_pack("{s:s}", "id", name));
	}
	for (int i = 0; i < 100; i++)
		assert_int_equal(container_podman_index(&list, json), 0);
	assert_int_equal(list.count, CONTAINERS_MAX);
	assert_non_null(strstr(list.caveat, "are left out"));
	assert_non_null(strstr(list.caveat, "read only up to"));
	json_decref(json);
	alarm(0);
	container_list_free(&list);
}

/*
 * Links, FIFOs, and files that are too large or too deep: not followed, not waited for, not
 * accepted.
 */
static void hostile_files(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.current_owner.uid = geteuid()};
	struct buffer text = {0};
	json_t *json;
	char *deep;

	put(folder, "outside/config.v2.json", docker_config);
	put(folder, "outside/other.json", docker_kubernetes);
	put(folder, "containers/x/x", "");
	assert_int_equal(symlinkat("../outside", folder->fd, "containers/" ID_A), 0);
	assert_int_equal(container_docker_root(&list, folder->fd), 0);
	assert_int_equal(list.count, 0);
	put(folder, "containers/" ID_B "/x", "");
	assert_int_equal(symlinkat("../../outside/other.json", folder->fd,
				   "containers/" ID_B "/config.v2.json"),
			 0);
	assert_int_equal(mkfifoat(folder->fd, "containers/x/config.v2.json", 0600), 0);
	assert_int_equal(container_docker_root(&list, folder->fd), 0);
	assert_int_equal(list.count, 0);

	assert_int_equal(state_file_read(folder->fd, "containers/x/config.v2.json", 10, &text),
			 -EINVAL);
	assert_int_equal(state_file_read(folder->fd, "containers", 10, &text), -EINVAL);
	assert_int_equal(state_file_read(folder->fd, "../x", 10, &text), -EXDEV);
	put(folder, "large", "0123456789a");
	assert_int_equal(state_file_read(folder->fd, "large", 10, &text), -EFBIG);
	assert_int_equal(state_file_read(folder->fd, "large", 11, &text), 0);
	assert_int_equal(text.size, 11);
	buffer_free(&text);

	deep = malloc(1u << 18);
	memset(deep, '[', (1u << 18) - 1);
	deep[(1u << 18) - 1] = '\0';
	put(folder, "deep", deep);
	free(deep);
	assert_int_equal(state_json_read(folder->fd, "deep", CONTAINER_CONFIG_BYTES, NULL, &json),
			 -EBADMSG);
	put(folder, "pid", "12x");
	assert_int_equal(state_pid_read(folder->fd, "pid"), 12);
	put(folder, "pid", "-12");
	assert_int_equal(state_pid_read(folder->fd, "pid"), 0);
	put(folder, "pid", "99999999999");
	assert_int_equal(state_pid_read(folder->fd, "pid"), 0);
	assert_int_equal(state_pid_read(folder->fd, "no pid"), 0);
	container_list_free(&list);
}

/* --- a daemon's socket ------------------------------------------------------------------------ */

/*
 * A daemon that accepts one client, sends it this text and hangs up, or sends nothing until it is
 * killed.
 */
static pid_t daemon_start(const struct folder *folder, const char *text, char path[96])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), client;
	char request[512];
	pid_t child;

	snprintf(path, 96, "%s/socket", folder->path);
	unlink(path);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 4), 0);
	child = fork();
	if (!child) {
		client = accept(fd, NULL, NULL);
		if (read(client, request, sizeof(request)) <= 0)
			_exit(1);
		if (!text)
			pause();
		_exit(write(client, text, strlen(text)) < 0);
	}
	close(fd);
	return child;
}

static void docker_socket(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.current_owner.uid = geteuid()};
	char path[96];
	int status;
	pid_t daemon = daemon_start(folder, docker_answer, path);

	assert_int_equal(container_docker_ask(&list, 0, path), 0);
	assert_int_equal(list.count, 2);
	assert_string_equal(get(&list, ID_A)->name, "web-1");
	assert_int_equal(get(&list, ID_B)->sandbox, 1);
	container_list_free(&list);
	waitpid(daemon, &status, 0);
	assert_int_equal(status, 0);

	daemon = daemon_start(folder, "HTTP/1.0 500 no\r\n\r\n[]", path);
	assert_int_equal(container_docker_ask(&list, 0, path), -EBADMSG);
	waitpid(daemon, &status, 0);
	daemon = daemon_start(folder, NULL, path);
	assert_int_equal(container_docker_ask(&list, 0, path), -ETIMEDOUT);
	kill(daemon, SIGKILL);
	waitpid(daemon, &status, 0);
	assert_int_equal(container_docker_ask(&list, 0, path), -ECONNREFUSED);
	unlink(path);
	assert_int_equal(container_docker_ask(&list, 0, path), -ENOENT);
	assert_int_equal(container_docker_ask(&list, 0, "socket"), -EINVAL);
	assert_int_equal(list.count, 0);
}

/* State in a directory that another user owns, or that anyone may write to, is not trusted. */
static void others_state(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.current_owner.uid = geteuid() + 1};

	put(folder, "containers/" ID_A "/config.v2.json", docker_config);
	put(folder, "overlay-containers/containers.json", podman_index);
	put(folder, "default/job-1/config.json", bundle_plain);
	for (int open = 0; open < 2; open++) {
		assert_int_equal(container_docker_root(&list, folder->fd), -EPERM);
		assert_int_equal(container_podman_storage(&list, folder->fd), 0);
		assert_int_equal(container_containerd_tasks(&list, folder->fd), 0);
		assert_int_equal(list.count, 0);
		list.current_owner.uid = geteuid();
		assert_int_equal(fchmodat(folder->fd, "containers", 0777, 0), 0);
		assert_int_equal(fchmodat(folder->fd, "overlay-containers", 0777, 0), 0);
		assert_int_equal(fchmodat(folder->fd, "default", 0777, 0), 0);
	}
	assert_int_equal(fchmodat(folder->fd, "containers", 0700, 0), 0);
	assert_int_equal(container_docker_root(&list, folder->fd), 0);
	assert_int_equal(list.count, 1);
	container_list_free(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(docker_state, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(podman_state, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(containerd_state, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(kubernetes_names, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(docker_tags, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(containerd_tags, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(podman_tags, folder_make, folder_remove),
		cmocka_unit_test(hostile_tags),
		cmocka_unit_test_setup_teardown(hostile_files, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(large_state, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(docker_socket, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(others_state, folder_make, folder_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
