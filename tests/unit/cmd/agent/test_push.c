/* SPDX-License-Identifier: Apache-2.0 */
/* What the sender of profiles keeps and when it tries again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/agent/push.h"
#include "cmd/agent/spool.h"
#include "util/http_client.h"

#define SECOND 1000000000ull

static char folder[64];

static int folder_new(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/tracer-spool-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static int put(struct spool *spool, unsigned int kind, const char *text)
{
	const struct buffer body = {.data = (unsigned char *)text, .size = strlen(text)};

	return spool_put(spool, kind, &body);
}

/* The oldest of a kind is this text, and is removed; NULL: there is none. */
static void take(struct spool *spool, unsigned int kind, const char *expected)
{
	const struct spool_item *item = spool_oldest(spool, kind);
	struct buffer body = {0};

	if (!expected) {
		assert_null(item);
		return;
	}
	assert_non_null(item);
	assert_int_equal(spool_read(spool, item, &body), 0);
	assert_int_equal(body.size, strlen(expected));
	assert_memory_equal(body.data, expected, body.size);
	buffer_free(&body);
	spool_remove(spool, item);
}

static void file_put(const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int is_there(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return !access(path, F_OK);
}

static void test_order(void **state)
{
	struct spool spool;

	(void)state;
	assert_int_equal(spool_open(&spool, folder, 1000), 0);
	assert_int_equal(put(&spool, 0, "one") | put(&spool, 1, "two") | put(&spool, 0, "three"),
			 0);
	assert_int_equal(spool.bytes, 11);
	assert_int_equal(spool.sums[0].files, 2);
	assert_int_equal(spool.sums[1].bytes, 3);
	spool_close(&spool);
	/* What is in the folder is found again, in its order; numbers go on. */
	assert_int_equal(spool_open(&spool, folder, 1000), 0);
	assert_int_equal(put(&spool, 0, "four"), 0);
	take(&spool, 0, "one");
	take(&spool, 0, "three");
	take(&spool, 0, "four");
	take(&spool, 0, NULL);
	take(&spool, 1, "two");
	assert_int_equal(spool.bytes, 0);
	assert_int_equal(spool.sums[0].dropped + spool.sums[1].dropped, 0);
	spool_close(&spool);
}

static void test_bound(void **state)
{
	struct spool spool;

	(void)state;
	assert_int_equal(spool_open(&spool, folder, 10), 0);
	assert_int_equal(put(&spool, 0, "12345") | put(&spool, 1, "1234") | put(&spool, 1, "5678"),
			 0);
	assert_int_equal(spool.sums[0].dropped, 1);
	assert_int_equal(put(&spool, 0, "more than all of it"), -EFBIG);
	assert_int_equal(spool.sums[0].dropped, 2);
	assert_int_equal(spool.sums[1].files, 2);
	spool_close(&spool);
	/* A smaller space drops the oldest at the start. */
	assert_int_equal(spool_open(&spool, folder, 5), 0);
	assert_int_equal(spool.sums[1].dropped, 1);
	take(&spool, 1, "5678");
	spool_close(&spool);
}

static void test_left(void **state)
{
	struct spool spool, other;
	struct buffer body = {0};

	(void)state;
	file_put(".tracer-0123456789abcdef.tmp", "half");
	file_put("other", "not ours");
	file_put("1.0", "a number in another form");
	file_put("0000000000000001.9", "of no receiver");
	file_put("ffffffffffffffff.0", "the last number");
	file_put("00000000000000ff.1", "right");
	assert_int_equal(spool_open(&spool, folder, 1000), 0);
	assert_false(is_there(".tracer-0123456789abcdef.tmp"));
	assert_true(is_there("other"));
	assert_int_equal(spool.count, 1);
	assert_int_equal(spool.next, 0x100);
	/* One process at a time. */
	assert_int_equal(spool_open(&other, folder, 1000), -EBUSY);
	/* A file that somebody has changed is not sent. */
	spool.items[0].bytes = 3;
	assert_int_equal(spool_read(&spool, &spool.items[0], &body), -EBADMSG);
	spool.items[0].bytes = 5;
	assert_int_equal(spool_read(&spool, &spool.items[0], &body), 0);
	buffer_free(&body);
	spool_close(&spool);
}

/* However the writer of bodies is killed, the next one reads whole bodies without a gap. */
static void test_kills(void **state)
{
	struct buffer body = {0};
	struct spool spool;
	char text[3000];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();

		if (!pid) {
			if (spool_open(&spool, folder, 1 << 20))
				_exit(1);
			for (;;)
				if (put(&spool, 0, text))
					_exit(1);
		}
		usleep(1000 * (unsigned int)(i % 7 + 1));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		assert_int_equal(spool_open(&spool, folder, 1 << 20), 0);
		for (size_t j = 0; j < spool.count; j++) {
			assert_int_equal(spool.items[j].number, spool.items[0].number + j);
			assert_int_equal(spool_read(&spool, &spool.items[j], &body), 0);
			assert_int_equal(body.size, sizeof(text) - 1);
		}
		assert_true(spool.bytes <= 1 << 20);
		spool_close(&spool);
	}
	buffer_free(&body);
}

static void test_pauses(void **state)
{
	(void)state;
	assert_int_equal(push_pause_ns(1, 0, 0), SECOND / 2);
	assert_int_equal(push_pause_ns(1, 0, 1), SECOND);
	assert_int_equal(push_pause_ns(4, 0, 1), 8 * SECOND);
	assert_int_equal(push_pause_ns(9, 0, 1), 256 * SECOND);
	assert_int_equal(push_pause_ns(10, 0, 1), 300 * SECOND);
	assert_int_equal(push_pause_ns(UINT32_MAX, 0, 0), 150 * SECOND);
	/* What the server asks for is the least, up to ten minutes. */
	assert_int_equal(push_pause_ns(1, 7, 0), 7 * SECOND);
	assert_int_equal(push_pause_ns(10, 7, 1), 7 * SECOND + 7 * SECOND / 10);
	assert_int_equal(push_pause_ns(1, UINT64_MAX, 0), 600 * SECOND);
}

static void test_urls(void **state)
{
	static const char *const right[] = {"http://a", "https://a.b:4318/x/y", "HTTP://[::1]:4040",
					    "http://a/"};
	static const char *const wrong[] = {
		"",           "a",           "ftp://a",        "http://",    "http:///a",
		"http://:80", "http://u@a",  "http://a?b",     "http://a#b", "http://a b",
		"http://a\n", "file:///etc", "http://\xc3\xa9"};

	(void)state;
	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
		assert_true(http_url_is_valid(right[i]));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_false(http_url_is_valid(wrong[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_order, folder_new, folder_remove),
		cmocka_unit_test_setup_teardown(test_bound, folder_new, folder_remove),
		cmocka_unit_test_setup_teardown(test_left, folder_new, folder_remove),
		cmocka_unit_test_setup_teardown(test_kills, folder_new, folder_remove),
		cmocka_unit_test(test_pauses),
		cmocka_unit_test(test_urls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
