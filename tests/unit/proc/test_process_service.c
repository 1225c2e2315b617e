/* SPDX-License-Identifier: Apache-2.0 */
/* What environments and process contexts say of a service and its version. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/memory.h"
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
	process_service_read(pid, NULL, &service);
	assert_string_equal(service.name, "shop");
	assert_string_equal(service.version, "1.2");
	close(input[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	process_service_read(pid, NULL, &service);
	assert_string_equal(service.name, "");
}

/* Messages: KeyValue {key, AnyValue {text}}, in a Resource, and in a message around it. */
#define NAME "\x0a\x0cservice.name\x12\x06\x0a\x04shop"
#define VERSION                                                                                    \
	"\x0a\x0fservice.version\x12\x05\x0a\x03"                                                  \
	"1.2"
#define OTHER       "\x0a\x05other\x12\x02\x18\x07"
#define RESOURCE    "\x0a\x0b" OTHER "\x0a\x16" NAME "\x10\x05\x0a\x18" VERSION
#define CONTEXT     "\x0a\x41" RESOURCE "\x12\x0b" OTHER
#define BYTES(text) ((const uint8_t *)(text)), sizeof(text) - 1

static void decode(const uint8_t *bytes, size_t size, struct process_service *service)
{
	uint8_t *copy = malloc(size + !size);

	memcpy(copy, bytes, size);
	*service = (struct process_service){.name = "was", .version = "0"};
	process_service_decode(copy, size, service);
	free(copy);
}

static void contexts(void **state)
{
	struct process_service service;

	(void)state;
	decode(BYTES(RESOURCE), &service);
	assert_string_equal(service.name, "shop");
	assert_string_equal(service.version, "1.2");
	decode(BYTES(CONTEXT), &service);
	assert_string_equal(service.name, "shop");
	assert_string_equal(service.version, "1.2");
	/* What it does not have stays. */
	decode(BYTES("\x0a\x16" NAME), &service);
	assert_string_equal(service.name, "shop");
	assert_string_equal(service.version, "0");
	decode(BYTES("\x0a\x0b" OTHER), &service);
	assert_string_equal(service.name, "was");
}

static void damaged_contexts(void **state)
{
	static const uint8_t whole[] = CONTEXT;
	uint8_t damaged[sizeof(whole)];
	struct process_service service;

	(void)state;
	for (size_t size = 0; size < sizeof(whole); size++)
		decode(whole, size, &service);
	for (size_t at = 0; at < sizeof(whole); at++)
		for (unsigned int value = 0; value < 256; value++) {
			memcpy(damaged, whole, sizeof(whole));
			damaged[at] = (uint8_t)value;
			decode(damaged, sizeof(whole), &service);
			assert_true(strlen(service.name) < PROCESS_SERVICE_TEXT);
			assert_true(strlen(service.version) < PROCESS_SERVICE_TEXT);
		}
	/* a number of more than 64 bits, and lengths beyond the end */
	decode(BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), &service);
	decode(BYTES("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), &service);
	assert_string_equal(service.name, "was");
}

struct context_header {
	char signature[8];
	uint32_t version, bytes;
	uint64_t time_ns;
	const char *payload;
};

/* What is read of a process that publishes this. */
static void published(const struct context_header *header, const char *name)
{
	struct context_header *mapped;
	struct process_service service;
	struct space *space;
	int ready[2];
	char byte = 'x';

	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (!pid) {
		int file = memfd_create("OTEL_CTX", MFD_CLOEXEC);

		if (file < 0 || ftruncate(file, 4096))
			_exit(1);
		mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
		if (mapped == MAP_FAILED)
			_exit(1);
		*mapped = *header;
		(void)!write(ready[1], &byte, 1);
		pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(space_open(&space, pid), 0);
	process_service_read(pid, space, &service);
	assert_string_equal(service.name, name);
	space_close(space);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(ready[0]);
	close(ready[1]);
}

static void of_a_context(void **state)
{
	static const char payload[] = RESOURCE;
	const struct context_header good = {"OTEL_CTX", 2, sizeof(payload) - 1, 1, payload};
	struct context_header bad = good;

	(void)state;
	unsetenv("OTEL_SERVICE_NAME");
	published(&good, "shop");
	bad.signature[0] = 'o';
	published(&bad, "");
	bad = good;
	bad.version = 3;
	published(&bad, "");
	bad = good;
	bad.bytes = UINT32_MAX;
	published(&bad, "");
	bad = good;
	bad.payload = (const char *)8;
	published(&bad, "");
	/* It changes it, and does not end. */
	bad = good;
	bad.time_ns = 0;
	published(&bad, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_and_versions), cmocka_unit_test(long_values_are_cut),
		cmocka_unit_test(of_a_process),       cmocka_unit_test(contexts),
		cmocka_unit_test(damaged_contexts),   cmocka_unit_test(of_a_context),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
