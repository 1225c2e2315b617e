/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "session/ctl/request.h"
#include "util/error.h"

static int parse(const char *line, struct request *out)
{
	return request_parse(line, strlen(line), out);
}

static void test_requests(void **state)
{
	static const char *const names[] = {"status", "snapshot", "clear",  "reset-peak",
					    "lookup", "stop",     "blocks", "sums"};
	struct request request;
	enum request_kind kind;
	(void)state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct request asked = {.kind = i,
					.pid = 4194304,
					.address = i == REQUEST_LOOKUP ? INT64_MAX : 0,
					.by = i == REQUEST_SUMS ? REQUEST_BY_TASK
								: REQUEST_BY_STACK,
					.since = i == REQUEST_SUMS ? UINT32_MAX : 0,
					.all = i == REQUEST_SNAPSHOT};
		char text[REQUEST_BYTES];
		size_t size = request_print(text, &asked);

		assert_int_equal(text[size - 1], '\n');
		assert_int_equal(request_kind_of(names[i], &kind), 0);
		assert_int_equal(kind, i);
		assert_int_equal(request_parse(text, size - 1, &request), 0);
		assert_int_equal(request.kind, i);
		assert_int_equal(request.pid, asked.pid);
		assert_true(request.address == asked.address);
		assert_int_equal(request.all, asked.all);
		assert_int_equal(request.by, asked.by);
		assert_int_equal(request.since, asked.since);
	}
	for (enum request_by by = REQUEST_BY_STACK; by <= REQUEST_BY_AGE; by++) {
		const struct request asked = {.kind = REQUEST_SUMS, .by = by, .older_ms = 7};
		char text[REQUEST_BYTES];

		assert_int_equal(request_parse(text, request_print(text, &asked) - 1, &request), 0);
		assert_int_equal(request.by, by);
		assert_int_equal(request.older_ms, 7);
		assert_int_equal(request.ages, 0);
	}
	assert_int_equal(parse(" {\"more\": [1, {}], \"request\": \"stop\"}\r", &request), 0);
	assert_int_equal(request.kind, REQUEST_STOP);
	assert_int_equal(request.pid, 0);
	assert_int_equal(request_kind_of("", &kind), -EINVAL);
}

/* Objects that are not requests: the sender receives the reason and may continue. */
static void test_refused(void **state)
{
	static const char *const lines[] = {
		"{}",
		"{\"request\": 1}",
		"{\"request\": null}",
		"{\"request\": \"Status\"}",
		"{\"request\": \"statuss\"}",
		"{\"request\": \"status\", \"pid\": 0}",
		"{\"request\": \"status\", \"pid\": -1}",
		"{\"request\": \"status\", \"pid\": 2147483648}",
		"{\"request\": \"status\", \"pid\": \"1\"}",
		"{\"request\": \"status\", \"pid\": 1.0}",
		"{\"request\": \"lookup\"}",
		"{\"request\": \"lookup\", \"address\": 0}",
		"{\"request\": \"lookup\", \"address\": \"0x10\"}",
		"{\"request\": \"lookup\", \"address\": -16}",
		"{\"request\": \"lookup\", \"address\": 1e3}",
		"{\"request\": \"lookup\", \"address\": true}",
		"{\"request\": \"sums\", \"since\": -1}",
	};
	struct request request = {.kind = REQUEST_STOP, .pid = 7};
	(void)state;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_int_equal(parse(lines[i], &request), -EINVAL);
		assert_non_null(strchr(error_reason(-EINVAL), '"'));
	}
	assert_int_equal(request.kind, REQUEST_STOP); /* unchanged */
	assert_int_equal(request.pid, 7);
}

static void test_garbage(void **state)
{
	static const char *const lines[] = {
		"",
		" ",
		"status",
		"[]",
		"\"status\"",
		"1",
		"null",
		"{",
		"{\"request\": \"status\"",
		"{\"request\": \"status\"}}",
		"{\"request\": \"status\"} {}",
		"{\"request\": \"status\", \"request\": \"stop\"}",
		"{\"request\": \"stat\\u0000us\"}",
		"{\"request\": \"\xff\"}",
		"{\"request\": \"\\ud800\"}",
		"{'request': 'status'}",
		"{\"request\": \"lookup\", \"address\": 9223372036854775808}",
		"GET / HTTP/1.1",
	};
	char *line = malloc(2 * REQUEST_BYTES);
	struct request request;
	(void)state;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		assert_int_equal(parse(lines[i], &request), -EBADMSG);
	assert_int_equal(request_parse("{\"request\": \"stop\"\0}", 20, &request), -EBADMSG);
	/* Deeply nested, and long. */
	assert_non_null(line);
	memset(line, '[', 2 * REQUEST_BYTES);
	assert_int_equal(request_parse(line, REQUEST_BYTES - 1, &request), -EBADMSG);
	memcpy(line, "{\"request\": \"stop\", \"x\": ", 25);
	assert_int_equal(request_parse(line, REQUEST_BYTES - 1, &request), -EBADMSG);
	memset(line, ' ', 2 * REQUEST_BYTES);
	memcpy(line, "{\"request\": \"stop\"}", 19);
	assert_int_equal(request_parse(line, REQUEST_BYTES - 1, &request), 0);
	assert_int_equal(request_parse(line, REQUEST_BYTES, &request), -EBADMSG);
	free(line);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
