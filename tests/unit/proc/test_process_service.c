/* SPDX-License-Identifier: Apache-2.0 */
/* What environments say of a service and its version. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/process_service.h"

#define ATTRIBUTES                  "OTEL_RESOURCE_ATTRIBUTES="
#define EXPECT(text, name, version) expect(text, sizeof(text) - 1, name, version)

/* text: as /proc/PID/environ has it, maybe without its last NUL. */
static void expect(const char *text, size_t bytes, const char *name, const char *version)
{
	/* of exactly that size, so that a sanitizer detects a read beyond it */
	char *copy = malloc(bytes + !bytes);
	struct process_service service;

	memcpy(copy, text, bytes);
	process_service_parse(copy, bytes, &service);
	assert_string_equal(service.name, name);
	assert_string_equal(service.version, version);
	free(copy);
}

static void names_and_versions(void **state)
{
	(void)state;
	EXPECT("", "", "");
	EXPECT("A=1\0OTEL_SERVICE_NAME=shop\0B=2\0", "shop", "");
	EXPECT(ATTRIBUTES "service.name=shop,service.version=1.2", "shop", "1.2");
	EXPECT(ATTRIBUTES " host.name=h , service.version= 1.2 ,service.name=a=b\0", "a=b", "1.2");
	/* The variable of its own takes precedence, in any order. */
	EXPECT("OTEL_SERVICE_NAME=one\0" ATTRIBUTES "service.name=two\0", "one", "");
	EXPECT(ATTRIBUTES "service.name=two\0OTEL_SERVICE_NAME=one\0", "one", "");
	EXPECT(ATTRIBUTES "service.name=two\0OTEL_SERVICE_NAME=\0", "two", "");
	EXPECT(ATTRIBUTES "service.version=v1%2C2%20%e2%82%AC", "", "v1,2 \xe2\x82\xac");
	EXPECT(ATTRIBUTES "service.version=100%,service.name=%4", "%4", "100%");
	EXPECT(ATTRIBUTES "service.version=a%00b", "", "a");
	EXPECT(ATTRIBUTES "xservice.name=no,service.names=no,,,", "", "");
	EXPECT("XOTEL_SERVICE_NAME=no\0OTEL_SERVICE_NAMES=no\0OTEL_SERVICE_NAME", "", "");
}

static void long_values_are_cut(void **state)
{
	char text[1000], cut[PROCESS_SERVICE_TEXT];

	(void)state;
	memset(text, 'x', sizeof(text));
	memcpy(text, "OTEL_SERVICE_NAME=", 18);
	memset(cut, 'x', sizeof(cut) - 1);
	cut[sizeof(cut) - 1] = '\0';
	expect(text, sizeof(text), cut, "");
}

static void of_a_process(void **state)
{
	static char *const words[] = {"cat", NULL};
	static char *const variables[] = {"OTEL_SERVICE_NAME=shop",
					  ATTRIBUTES "service.version=1.2", NULL};
	struct process_service service;
	int input[2], output[2];
	char byte = 'x';

	(void)state;
	assert_int_equal(pipe(input) | pipe(output), 0);
	pid_t pid = fork();
	if (!pid) {
		dup2(input[0], 0);
		dup2(output[1], 1);
		close(input[1]);
		execve("/bin/cat", words, variables);
		_exit(1);
	}
	/* It answers when it has its own environment. */
	assert_int_equal(write(input[1], &byte, 1), 1);
	assert_int_equal(read(output[0], &byte, 1), 1);
	process_service_read(pid, &service);
	assert_string_equal(service.name, "shop");
	assert_string_equal(service.version, "1.2");
	close(input[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	process_service_read(pid, &service);
	assert_string_equal(service.name, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_and_versions),
		cmocka_unit_test(long_values_are_cut),
		cmocka_unit_test(of_a_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
