/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that container runtimes keep, as Docker 20.10, Podman 4.3, containerd 1.6 and
 * Kubernetes 1.2x leave it (shortened), the same by somebody who means us harm, and the names that
 * users type.
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
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "container/container_list.h"
#include "container/state_file.h"

#define ID_A "fe0b56ec3c688e9354c927d1d563387f0db8ba9eb5349d318477fde6144231aa"
#define ID_B "1f02158942600f1e560e7308875d84dc3dcb3fd5af0bae7dcf8fab68295cf74a"
#define ID_C "36a73ff024ffd17873626f82bc4908409f739ed04e9304ba4e4d5e54648a5216"

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

/* --- a folder --------------------------------------------------------------------------------- */

struct folder {
	char path[64];
	int fd;
};

static int folder_make(void **state)
{
	struct folder *folder = calloc(1, sizeof(*folder));

	strcpy(folder->path, "/tmp/test_container.XXXXXX");
	if (!mkdtemp(folder->path))
		return -1;
	folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY);
	*state = folder;
	return folder->fd < 0 ? -1 : 0;
}

static int folder_remove(void **state)
{
	struct folder *folder = *state;
	char command[128];

	close(folder->fd);
	snprintf(command, sizeof(command), "rm -rf %s", folder->path);
	free(folder);
	return system(command);
}

/* Writes a file, and the folders on its way. */
static void put(const struct folder *folder, const char *path, const char *text)
{
	char part[512];
	int fd;

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		mkdirat(folder->fd, part, 0700);
	}
	fd = openat(folder->fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

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
	struct container_list list = {.reading.uid = geteuid()};

	assert_int_equal(container_docker_root(&list, folder->fd), -ENOENT);
	put(folder, "containers/" ID_A "/config.v2.json", docker_config);
	put(folder, "containers/" ID_B "/config.v2.json", docker_kubernetes);
	put(folder, "containers/" ID_C "/config.v2.json", docker_config); /* another one's */
	put(folder, "containers/.tmp/config.v2.json", docker_config);
	put(folder, "containers/x/config.v2.json", "{\"ID\": \"x\"");
	assert_int_equal(container_docker_root(&list, folder->fd), 0);
	assert_int_equal(list.count, 2);
	assert_string_equal(get(&list, ID_A)->name, "web-1");
	assert_int_equal(get(&list, ID_A)->runtime, CONTAINER_RUNTIME_DOCKER);
	assert_int_equal(get(&list, ID_A)->init_pid, 0); /* no such process, or no container's */
	assert_string_equal(get(&list, ID_B)->name, "app");
	assert_string_equal(get(&list, ID_B)->pod, "web-0");
	assert_string_equal(get(&list, ID_B)->pod_namespace, "front");
	container_list_free(&list);
}

static void podman_state(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.reading.uid = geteuid()};

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

static void containerd_state(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.reading.uid = geteuid()};

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

	/* Of logs, those of containers that are there. */
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

/* A file of so many bytes, "[{},{},...]", or with one text. */
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
 * A storage whose indexes are as large as they may be, linked again and again, and one with many
 * entries: gigabytes of memory, and minutes, for who reads all of it. What is left out is told.
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
	assert_int_equal(bytes, 0); /* its size says enough */

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
	assert_non_null(strstr(list.remark, "larger than what is read of it"));
	/* Another runtime has its own share, until all have had theirs. */
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
	assert_non_null(strstr(list.remark, "are left out"));
	assert_non_null(strstr(list.remark, "not read beyond"));
	json_decref(json);
	alarm(0);
	container_list_free(&list);
}

/* Links, FIFOs, what is too large or too deep: not followed, not waited for, not believed. */
static void hostile_files(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.reading.uid = geteuid()};
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
 * A daemon that takes one client, gives it this text and hangs up, or says nothing until it is
 * ended.
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
	struct container_list list = {.reading.uid = geteuid()};
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

/* --- names as users type them ----------------------------------------------------------------- */

static const struct container running[] = {
	{.id = ID_A, .name = "web-1", .runtime = CONTAINER_RUNTIME_DOCKER, .init_pid = 1},
	{.id = ID_B, .name = "web-10", .runtime = CONTAINER_RUNTIME_PODMAN, .init_pid = 1},
	{.id = "job-1", .name = "job-1", .space = "default", .init_pid = 1},
	{.id = "job-1", .name = "job-1", .space = "other", .init_pid = 1},
	{.id = ID_C, .name = "app", .pod = "shop-0", .pod_namespace = "front", .init_pid = 1},
	{.id = "c1", .name = "side", .pod = "shop-0", .pod_namespace = "front", .init_pid = 1},
	{.id = "c2", .pod = "shop-0", .pod_namespace = "front", .sandbox = 1, .init_pid = 1},
	{.id = "c3", .name = "app", .pod = "shop-1", .pod_namespace = "front", .init_pid = 1},
	{.id = "c4", .name = "app", .pod = "shop-0", .pod_namespace = "back", .init_pid = 1},
	{.id = "d1", .name = "old", .runtime = CONTAINER_RUNTIME_DOCKER},
	{.id = "d2", .name = "fe0b", .init_pid = 1},
};

/* Is one chosen, as is expected? Then choice.entries is the caller's to free(). */
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
		size_t count, first; /* its index in running */
		int exact;
	} cases[] = {
		{"web-1", 0, 1, 0, 1},
		{"web-10", 0, 1, 1, 1},
		{"web", -EEXIST, 0, 0, 0},
		{"web-2", -ENOENT, 0, 0, 0},
		{ID_A, 0, 1, 0, 1},
		{"fe0b56", 0, 1, 0, 0},
		{"fe0b", 0, 1, 10, 1}, /* a whole name before the beginning of an ID */
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
	/* Who waits for a name means a whole one. */
	assert_int_equal(container_choose(&list, "web", 1, &choice), -ENOENT);
	assert_int_equal(container_choose(&list, "back/shop-0/a", 1, &choice), -ENOENT);
	assert_int_equal(container_choose(&list, "fe0b56", 1, &choice), 0);
	free(choice.entries);
}

/* The same name or ID of several users: who speaks for whom, and what is never chosen from. */
static void owners(void **state)
{
	static char path[] = "/user/x";
	static const struct container said[] = {
		{.id = ID_A, .name = "web-1", .init_pid = 1},
		{.id = "web-1", .name = "x", .owner.uid = 7, .init_pid = 1}, /* a claimed ID */
		{.id = "c1", .name = "db-1", .init_pid = 1},
		{.id = "c2", .name = "db-1", .owner.uid = 7, .init_pid = 1},
		{.id = "c3", .name = "old"}, /* does not run */
		{.id = "c4", .name = "old", .owner.uid = 7, .init_pid = 1},
		{.id = "c5", .name = "his", .owner.uid = 7, .init_pid = 1},
		{.id = "c6",
		 .name = "his",
		 .owner.uid = 8}, /* of another user's that does not run nobody knows */
		{.id = ID_B, .name = "y", .owner.uid = 7, .cgroup.path = path, .init_pid = 1},
		/* called as another is numbered */
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

/*
 * State in a directory of another user's, or that anybody may write to, is not whose it claims to
 * be.
 */
static void others_state(void **state)
{
	struct folder *folder = *state;
	struct container_list list = {.reading.uid = geteuid() + 1};

	put(folder, "containers/" ID_A "/config.v2.json", docker_config);
	put(folder, "overlay-containers/containers.json", podman_index);
	put(folder, "default/job-1/config.json", bundle_plain);
	for (int open = 0; open < 2; open++) {
		assert_int_equal(container_docker_root(&list, folder->fd), -EPERM);
		assert_int_equal(container_podman_storage(&list, folder->fd), 0);
		assert_int_equal(container_containerd_tasks(&list, folder->fd), 0);
		assert_int_equal(list.count, 0);
		list.reading.uid = geteuid();
		assert_int_equal(fchmodat(folder->fd, "containers", 0777, 0), 0);
		assert_int_equal(fchmodat(folder->fd, "overlay-containers", 0777, 0), 0);
		assert_int_equal(fchmodat(folder->fd, "default", 0777, 0), 0);
	}
	assert_int_equal(fchmodat(folder->fd, "containers", 0700, 0), 0);
	assert_int_equal(container_docker_root(&list, folder->fd), 0);
	assert_int_equal(list.count, 1);
	container_list_free(&list);
}

/* A cgroup is that of whoever could make it, and of the container that it lies in. */
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
	line.path = "/../../docker/" ID_A; /* beyond our namespace: nobody can look */
	container_owner_of_cgroup(&list, &line, strlen(line.path), &owner);
	assert_int_equal(owner.uid, 0);
	container_list_free(&list);
}

/* A program that lends its owner's rights is no monitor, whatever it is called; we are one. */
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

/* What is said: those that begin alike come first, what does not fit is counted. */
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
			       "there are web-38 (docker 3856ec3c688e), web-39 (docker "));
	assert_non_null(strstr(error_reason(-ENOENT), " more"));
	assert_int_equal(container_choose(&list, "db", 0, &choice), -EEXIST);
	assert_non_null(
		strstr(error_reason(-EEXIST), "any of 38: db-0 (docker 0056ec3c688e), db-1 "));
	memset(entries[0].name, 'x', CONTAINER_NAME_SIZE - 1);
	list.count = 1;
	assert_int_equal(container_choose(&list, "web-1", 0, &choice), -ENOENT);
	assert_non_null(strstr(error_reason(-ENOENT), "there are 1 of them"));
	entries[0].init_pid = 0;
	assert_int_equal(container_choose(&list, entries[0].id, 0, &choice), -ENOENT);
	assert_non_null(strstr(error_reason(-ENOENT), "does not run"));
	list.count = 0;
	assert_int_equal(container_choose(&list, "web-1", 0, &choice), -ENOENT);
	assert_non_null(strstr(error_reason(-ENOENT), "no container runs"));
	container_list_remark(&list, "Docker's socket %s is silent", "/x");
	assert_int_equal(container_choose(&list, "web-1", 0, &choice), -ENOENT);
	assert_non_null(strstr(error_reason(-ENOENT), "Docker's socket /x is silent"));
}

/* What is added later fills in what is missing; an init that is none of its is not believed. */
static void merging(void **state)
{
	struct container_list list = {0};
	struct container first = {.id = ID_A},
			 second = {.id = ID_A, .name = "web-1", .init_pid = getpid()};
	struct container third = {
		.id = ID_A, .name = "old", .runtime = CONTAINER_RUNTIME_DOCKER, .space = "moby"};

	(void)state;
	assert_int_equal(container_list_add(&list, &first), 0);
	assert_int_equal(container_list_add(&list, &second), 0);
	assert_int_equal(container_list_add(&list, &third), 0);
	assert_int_equal(list.count, 1);
	assert_string_equal(list.entries[0].name, "web-1");
	assert_string_equal(list.entries[0].space, "moby");
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
		cmocka_unit_test_setup_teardown(docker_state, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(podman_state, folder_make, folder_remove),
		cmocka_unit_test(conmon_arguments),
		cmocka_unit_test_setup_teardown(containerd_state, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(kubernetes_names, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(hostile_files, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(large_state, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(docker_socket, folder_make, folder_remove),
		cmocka_unit_test(choices),
		cmocka_unit_test(owners),
		cmocka_unit_test_setup_teardown(others_state, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(cgroup_owners, folder_make, folder_remove),
		cmocka_unit_test_setup_teardown(process_owners, folder_make, folder_remove),
		cmocka_unit_test(reasons),
		cmocka_unit_test(merging),
		cmocka_unit_test(this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
