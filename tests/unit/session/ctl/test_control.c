/* SPDX-License-Identifier: Apache-2.0 */
/* A control over a trace of a few blocks, and clients on real sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "records.h"
#include "report/tracemalloc/snapshot_file.h"
#include "session/ctl/ask.h"
#include "session/ctl/client.h"
#include "session/ctl/control.h"
#include "session/ctl/session_socket.h"
#include "snapshot/snapshot.h"
#include "util/clock.h"
#include "util/error.h"

#define PY313 0x030d00f0u

struct session {
	struct trace *trace;
	struct control *control;
	char base[32], directory[64];
	int running;
};

static int session_refresh(void *context, size_t process, int reconcile)
{
	(void)context;
	(void)process;
	(void)reconcile;
	return 0;
}

static int session_mark(void *context, size_t process, uint32_t type)
{
	struct session *session = context;

	assert_int_equal(process, 0);
	return feed_mark(session->trace, type);
}

static int session_running(void *context, size_t process)
{
	const struct session *session = context;

	return process == 0 && session->running;
}

static struct control_opts opts_of(struct session *session)
{
	return (struct control_opts){
		.directory = session->directory,
		.trace = session->trace,
		.refresh = session_refresh,
		.mark = session_mark,
		.running = session_running,
		.context = session,
	};
}

static int setup(void **state)
{
	struct session *session = calloc(1, sizeof(*session));
	struct control_opts opts;

	log_level = 0;
	snprintf(session->base, sizeof(session->base), "/tmp/tracer-test-XXXXXX");
	if (!mkdtemp(session->base))
		return -1;
	snprintf(session->directory, sizeof(session->directory), "%s/sockets", session->base);
	session->running = 1;
	if (trace_new(&session->trace, NULL) || feed_process(session->trace, PY313) ||
	    feed_code(session->trace, 9, "/caf\xe9.py", "f", 7, EVENT_MISS_LINES, 0) ||
	    feed_stack(session->trace, 5, 9, 1) || feed_alloc(session->trace, 0x1000, 48, 5) ||
	    feed_alloc(session->trace, 0x2000, 1000, 5))
		return -1;
	opts = opts_of(session);
	*state = session;
	return control_new(&session->control, &opts);
}

static int teardown(void **state)
{
	struct session *session = *state;

	control_free(session->control);
	trace_free(session->trace);
	if (rmdir(session->directory) || rmdir(session->base)) /* empty: its socket is removed */
		return -1;
	free(session);
	return 0;
}

static int client_connect(const struct session *session)
{
	int fd = session_socket_connect(session->directory, getpid());

	assert_true(fd >= 0);
	return fd;
}

/* Reads up to the end of a line or of the connection ("" then); the control is served meanwhile. */
static void line_read(const struct session *session, int fd, char *text, size_t capacity)
{
	uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + 30000000000ull;
	size_t have = 0;

	while (!have || text[have - 1] != '\n') {
		control_serve(session->control);
		ssize_t n = recv(fd, text + have, capacity - 1 - have, MSG_DONTWAIT);
		assert_true(clock_ns(CLOCK_MONOTONIC) < end_ns);
		if (!n)
			break;
		if (n < 0)
			assert_true(errno == EAGAIN || errno == ECONNRESET);
		if (n < 0 && errno == ECONNRESET)
			break;
		have += n > 0 ? (size_t)n : 0;
	}
	text[have] = '\0';
}

static void text_send(int fd, const void *text, size_t size)
{
	assert_int_equal(send(fd, text, size, MSG_NOSIGNAL), size);
}

static void expect(const struct session *session, int fd, const char *request, const char *answer)
{
	char text[8192];

	text_send(fd, request, strlen(request));
	line_read(session, fd, text, sizeof(text));
	if (!strstr(text, answer))
		fail_msg("%s is answered by %s, which lacks %s", request, text, answer);
}

static void test_answers(void **state)
{
	struct session *session = *state;
	int fd = client_connect(session);

	expect(session, fd, "{\"request\": \"status\"}\n",
	       "\"traced_memory\": {\"size\": 1048, \"peak\": 1048}");
	expect(session, fd, "{\"request\": \"status\", \"pid\": 1000}\n",
	       "{\"is_tracing\": true, ");
	expect(session, fd, "{\"request\": \"lookup\", \"address\": 4128}\n",
	       "{\"address\": 4128, \"block\": {\"address\": 4096, \"offset\": 32, \"size\": 48, "
	       "\"domain\": 0, \"rounded\": false}, \"total_nframe\": 1, "
	       "\"total_nframe_exact\": true, \"traceback\": "
	       "[{\"filename\": \"/caf\\u00e9.py\", \"lineno\": 0, \"function\": \"f\"}]}\n");
	expect(session, fd, "{\"request\": \"lookup\", \"address\": 4144}\n",
	       "{\"address\": 4144, \"block\": null}\n");
	expect(session, fd, "{\"request\": \"status\", \"pid\": 1001}\n",
	       "{\"error\": \"this session does not trace PID 1001\"}\n");
	expect(session, fd, "{\"request\": \"snapshot\"}\n", "{\"error\": \"no descriptor ");
	expect(session, fd, "{\"request\": \"dance\"}\n", "{\"error\": ");
	assert_int_equal(feed_free(session->trace, 0x2000), 0);
	expect(session, fd, "{\"request\": \"reset-peak\"}\n", "{}\n");
	expect(session, fd, "{\"request\": \"status\"}\n",
	       "\"traced_memory\": {\"size\": 48, \"peak\": 48}");
	expect(session, fd, "{\"request\": \"clear\"}\n", "{}\n");
	expect(session, fd, "{\"request\": \"status\"}\n",
	       "\"traced_memory\": {\"size\": 0, \"peak\": 0}");
	assert_false(control_stop_wanted(session->control));
	expect(session, fd, "{\"request\": \"stop\"}\n", "{}\n");
	assert_true(control_stop_wanted(session->control));
	session->running = 0;
	expect(session, fd, "{\"request\": \"clear\"}\n",
	       "{\"error\": \"the process has ended\"}\n");
	expect(session, fd, "{\"request\": \"status\"}\n", "{\"is_tracing\": false, ");
	close(fd);
}

/* Several lines in one message, one line in many, and two clients in turn. */
static void test_pieces(void **state)
{
	struct session *session = *state;
	static const char half[] = "{\"request\": \"sta", rest[] = "tus\"}\n";
	int a = client_connect(session), b = client_connect(session);
	char text[8192];

	text_send(a, half, strlen(half));
	for (int i = 0; i < 3; i++)
		control_serve(session->control);
	expect(session, b,
	       "{\"request\": \"status\"}\n{\"request\": \"lookup\", \"address\": 1}\n\n",
	       "is_tracing");
	line_read(session, b, text, sizeof(text));
	assert_string_equal(text, "{\"address\": 1, \"block\": null}\n");
	expect(session, a, rest, "is_tracing");
	line_read(session, b, text, sizeof(text)); /* the empty line */
	assert_string_equal(text, "{\"error\": \"not a JSON object\"}\n");
	line_read(session, b, text, sizeof(text));
	assert_string_equal(text, "");
	close(a);
	close(b);
}

static void test_garbage(void **state)
{
	struct session *session = *state;
	char *text = malloc(1u << 20), answer[256];
	int fd = client_connect(session);

	assert_non_null(text);
	expect(session, fd, "GET / HTTP/1.1\n", "{\"error\": \"not a JSON object\"}\n");
	line_read(session, fd, answer, sizeof(answer));
	assert_string_equal(answer, "");
	close(fd);
	fd = client_connect(session);
	memset(text, 'x', 1u << 20); /* a line that never ends */
	assert_true(send(fd, text, 1u << 20, MSG_NOSIGNAL | MSG_DONTWAIT) > (ssize_t)REQUEST_BYTES);
	line_read(session, fd, answer, sizeof(answer));
	assert_string_equal(answer, "{\"error\": \"a line of more than 4096 bytes\"}\n");
	close(fd);
	fd = client_connect(session);
	expect(session, fd, "{\"request\": \"status\"}\n", "is_tracing");
	close(fd);
	free(text);
}

/*
 * A client that sends requests but does not read the responses is dropped once they fill the socket
 * buffer. Other clients never wait for it.
 */
static void test_hanging(void **state)
{
	uint64_t late_ns = clock_ns(CLOCK_MONOTONIC) + CONTROL_TIMEOUT_NS * 2;
	struct request request;
	struct client *client;
	char text[256] = "";
	int pair[2];
	(void)state;

	for (int line = 0; line < 2; line++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
		assert_int_equal(client_new(&client, pair[0], 1), 0);
		assert_true(client_idle(client));
		/* An idle client has no timeout. */
		assert_int_equal(client_next(client, late_ns, &request), 0);
		if (line) {
			text_send(pair[1], "{", 1);
			assert_int_equal(client_next(client, late_ns, &request), 0);
			text_send(pair[1], "\"", 1); /* more of the line, but not its end */
		} else {
			while (client_idle(client)) {
				client_answer(client, text, sizeof(text));
				assert_int_equal(client_flush(client), 0);
			}
		}
		assert_false(client_idle(client));
		assert_int_equal(client_next(client, clock_ns(CLOCK_MONOTONIC), &request), 0);
		assert_int_equal(client_next(client, late_ns + CONTROL_TIMEOUT_NS, &request),
				 -ETIMEDOUT);
		client_free(client);
		close(pair[1]);
	}
}

static void test_crowd(void **state)
{
	struct session *session = *state;
	int fds[CONTROL_CLIENTS + 1];
	char text[256];

	for (size_t i = 0; i <= CONTROL_CLIENTS; i++) {
		fds[i] = client_connect(session);
		expect(session, fds[i], "{\"request\": \"lookup\", \"address\": 1}\n", "null");
	}
	line_read(session, fds[0], text, sizeof(text)); /* the client that was idle for longest */
	assert_non_null(strstr(text, "too many clients"));
	for (size_t i = 1; i <= CONTROL_CLIENTS; i++)
		expect(session, fds[i], "{\"request\": \"lookup\", \"address\": 1}\n", "null");
	for (size_t i = 0; i <= CONTROL_CLIENTS; i++)
		close(fds[i]);
	for (size_t i = 0; i <= CONTROL_CLIENTS; i++)
		control_serve(session->control);
	assert_int_equal(control_poll_fds(session->control, (struct pollfd[CONTROL_POLLS]){0}), 1);
}

static void snapshot_send(int fd, int passed, size_t count)
{
	static const char line[] = "{\"request\": \"snapshot\"}\n";
	union {
		struct cmsghdr align;
		char capacity[CMSG_SPACE(16 * sizeof(int))];
	} control = {0};
	struct iovec data = {(void *)line, strlen(line)};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *at = CMSG_FIRSTHDR(&message);

	at->cmsg_level = SOL_SOCKET;
	at->cmsg_type = SCM_RIGHTS;
	at->cmsg_len = CMSG_LEN(count * sizeof(int));
	for (size_t i = 0; i < count; i++)
		memcpy(CMSG_DATA(at) + i * sizeof(int), &passed, sizeof(int));
	assert_int_equal(sendmsg(fd, &message, MSG_NOSIGNAL), strlen(line));
}

static int descriptors_open(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void test_snapshot(void **state)
{
	struct session *session = *state;
	int fd = client_connect(session), file, before;
	struct snapshot *snapshot;
	char text[256], path[64];

	snprintf(path, sizeof(path), "%s/file", session->base);
	file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(file >= 0);
	expect(session, fd, "{\"request\": \"lookup\", \"address\": 1}\n", "null");
	before = descriptors_open();
	snapshot_send(fd, file, 1);
	while (control_poll_fds(session->control, (struct pollfd[CONTROL_POLLS]){0}) < 3)
		control_serve(session->control);
	/* The snapshot shows the state at the time of the request. */
	assert_int_equal(feed_alloc(session->trace, 0x3000, 5000, 5), 0);
	line_read(session, fd, text, sizeof(text));
	assert_string_equal(text, "{\"snapshot\": true}\n");
	assert_int_equal(snapshot_load(path, &snapshot), 0);
	assert_int_equal(snapshot->trace_count, 2);
	assert_int_equal(snapshot->traces[1].bytes, 1000);
	snapshot_free(snapshot);
	/* Surplus descriptors are closed; one that cannot be written to is a separate error. */
	close(file);
	file = open(path, O_RDONLY | O_CLOEXEC);
	snapshot_send(fd, file, 16);
	line_read(session, fd, text, sizeof(text));
	assert_non_null(strstr(text, "{\"error\": \"cannot write to "));
	assert_int_equal(descriptors_open(), before);
	close(file);
	close(fd);
	unlink(path);
}

/* The pipe is not read: the session keeps running, and the writer ends with its client. */
static void test_snapshot_hangs(void **state)
{
	struct session *session = *state;
	int fd = client_connect(session), other = client_connect(session), ends[2];
	struct pollfd polls[CONTROL_POLLS];
	char full[4096] = {0};

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	while (write(ends[1], full, sizeof(full)) > 0)
		;
	assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
	snapshot_send(fd, ends[1], 1);
	while (control_poll_fds(session->control, polls) < 4)
		control_serve(session->control);
	expect(session, other, "{\"request\": \"status\"}\n", "is_tracing");
	assert_int_equal(control_poll_fds(session->control, polls), 4);
	close(fd);
	while (control_poll_fds(session->control, polls) > 2)
		control_serve(session->control);
	close(other);
	close(ends[0]);
	close(ends[1]);
}

static void test_place(void **state)
{
	struct session *session = *state;
	const char *directory = session->directory;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;
	pid_t *pids;
	size_t count;
	int fd;

	assert_int_equal(stat(directory, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%d.sock", directory, getpid());
	assert_int_equal(stat(address.sun_path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	/* Sockets of sessions that died, one with the PID of the next session. */
	for (pid_t pid = 1; pid <= 2; pid++) {
		snprintf(address.sun_path, sizeof(address.sun_path), "%s/%d.sock", directory, pid);
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		assert_int_equal(bind(fd, (void *)&address, sizeof(address)), 0);
		close(fd);
		assert_int_equal(session_socket_connect(directory, pid), -ECONNREFUSED);
	}
	fd = session_socket_listen(directory, 2);
	assert_true(fd >= 0);
	assert_int_equal(session_socket_list(directory, &pids, &count), 0);
	assert_int_equal(count, 2);
	assert_true((pids[0] == getpid() && pids[1] == 2) || (pids[0] == 2 && pids[1] == getpid()));
	free(pids);
	session_socket_remove(directory, 2);
	close(fd);
	assert_int_equal(chmod(directory, 0755), 0);
	assert_int_equal(session_socket_listen(directory, 2), -EPERM);
	assert_int_equal(chmod(directory, 0700), 0);
	assert_int_equal(session_socket_listen("/dev/null", 2), -ENOTDIR);
	assert_int_equal(session_socket_listen("/nowhere/at/all", 2), -ENOENT);
	assert_int_equal(session_socket_list("/nowhere", &pids, &count), -ENOENT);
	assert_int_equal(ask_find("/nowhere", 1, 0), -ESRCH);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_answers),        TEST(test_pieces), TEST(test_garbage),
		TEST(test_hanging),        TEST(test_crowd),  TEST(test_snapshot),
		TEST(test_snapshot_hangs), TEST(test_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
