/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What code does to containers, in the code that real interpreters run, of every version; and that
 * no code leads the scan astray.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inspect/holders/code_scan.h"
#include "pythons.h"

#define ORACLE "tests/unit/data/python/opcodes_oracle.py"
#define EVENTS 512
#define NAMES  1024

struct watched {
	char *names[NAMES];
	size_t name_count;
	char events[EVENTS];
};

static const char *name_of(struct scan *scan, uint32_t index)
{
	struct watched *watched = scan->context;

	return index < watched->name_count ? watched->names[index] : "";
}

/* Notes it; what a compiler has put into both branches is noted once. */
static void event(struct scan *scan, const char *what, struct scan_value value)
{
	struct watched *watched = scan->context;
	char *last = strrchr(watched->events, ','), text[64];

	assert_true(value.kind == SCAN_OBJECT || value.kind == SCAN_ATTRIBUTE);
	snprintf(text, sizeof(text), "%s %s%s", what, value.kind == SCAN_OBJECT ? "C" : ".members",
		 value.is_item ? "[]" : "");
	last = last ? last + 1 : watched->events;
	if (strcmp(last, text) != 0)
		snprintf(last + strlen(last),
			 (size_t)(watched->events + EVENTS - last) - strlen(last), "%s%s",
			 last[0] ? "," : "", text);
}

static struct scan_value global(struct scan *scan, uint32_t index)
{
	int known = !strcmp(name_of(scan, index), "C");

	return (struct scan_value){.kind = known ? SCAN_OBJECT : SCAN_NOTHING};
}

static struct scan_value local(struct scan *scan, uint32_t slot)
{
	(void)scan;
	(void)slot;
	return (struct scan_value){0};
}

static struct scan_value attribute(struct scan *scan, struct scan_value of, uint32_t index)
{
	const char *name = name_of(scan, index);

	if (!strcmp(name, "heappush"))
		return (struct scan_value){.kind = SCAN_PUSHER};
	if (!strcmp(name, "members"))
		return (struct scan_value){.kind = SCAN_ATTRIBUTE};
	if ((of.kind != SCAN_OBJECT && of.kind != SCAN_ATTRIBUTE) || of.is_computed)
		return (struct scan_value){0};
	if (!strcmp(name, "append") || !strcmp(name, "setdefault"))
		event(scan, "add", of);
	of.gives_item = !strcmp(name, "get") || !strcmp(name, "setdefault");
	return of.gives_item ? of : (struct scan_value){0};
}

static struct scan_value key(struct scan *scan, struct scan_value of, uint32_t index)
{
	(void)of;
	return local(scan, index);
}

static void filled(struct scan *scan, struct scan_value to, enum scan_write how)
{
	static const char *const what[] = {"read", "item", "inplace", "push"};

	event(scan, what[how], to);
}

static void replace_global(struct scan *scan, uint32_t index, struct scan_value by)
{
	if (!strcmp(name_of(scan, index), "C") && by.is_computed)
		event(scan, "global", by);
}

static void replace_attribute(struct scan *scan, struct scan_value of, uint32_t index,
			      struct scan_value by)
{
	(void)scan;
	(void)of;
	(void)index;
	(void)by;
}

static const struct scan_calls calls = {
	.global = global,
	.local = local,
	.cell = local,
	.attribute = attribute,
	.key = key,
	.write = filled,
	.replace_global = replace_global,
	.replace_attribute = replace_attribute,
};

/* The bytes, in a block of their size. */
static uint8_t *hex_decode(const char *hex, size_t *bytes)
{
	uint8_t *out = malloc(strlen(hex) / 2 + 1);
	unsigned int byte;

	for (*bytes = 0; sscanf(hex, "%2x", &byte) == 1; hex += 2)
		out[(*bytes)++] = (uint8_t)byte;
	return realloc(out, *bytes + !*bytes);
}

static void scan_check(const struct opcodes *opcodes, char *rest)
{
	struct watched watched = {0};
	struct scan scan = {.opcodes = opcodes, .calls = &calls, .context = &watched};
	char *hex = strtok_r(NULL, " ", &rest), *names = strtok_r(NULL, " ", &rest), *more;
	uint8_t *code = hex_decode(hex, &scan.bytes);

	scan.code = code;
	for (char *name = strtok_r(names, ",", &more); name; name = strtok_r(NULL, ",", &more))
		watched.names[watched.name_count++] = name;
	code_scan(&scan);
	rest[strcspn(rest, "\n")] = 0;
	if (strcmp(watched.events, rest) != 0)
		fail_msg("%s: %s, not %s", watched.names[0], watched.events, rest);
	free(code);
}

static size_t decode_check(const struct opcodes *opcodes, char *rest)
{
	char *hex = strtok_r(NULL, " ", &rest);
	struct instruction instruction = {0};
	size_t bytes, at = 0, count = 0;
	uint8_t *code = hex_decode(hex, &bytes);

	for (char *offset = strtok_r(NULL, ",\n", &rest); offset;
	     offset = strtok_r(NULL, ",\n", &rest)) {
		assert_int_equal(opcode_decode(opcodes, code, bytes, at, &instruction), 1);
		assert_int_equal(instruction.at, atoi(offset));
		at = instruction.next;
		count++;
	}
	assert_int_equal(at, bytes);
	free(code);
	return count;
}

static void oracle(unsigned int minor)
{
	struct opcodes opcodes;
	size_t capacity = 0, scans = 0, instructions = 0;
	char path[PATH_MAX], *line = NULL, *rest;
	struct python_child child = {0};

	if (!python_path(minor, path))
		skip();
	assert_int_equal(opcodes_for(0x0300 | minor, &opcodes), 1);
	assert_int_equal(python_start(&child, (char *[]){path, ORACLE, NULL}, NULL), 0);
	while (getline(&line, &capacity, child.out) > 0) {
		if (strcmp(strtok_r(line, " ", &rest), "scan") != 0) {
			char *again = rest;

			instructions += decode_check(&opcodes, again);
			continue;
		}
		scan_check(&opcodes, rest);
		scans++;
	}
	free(line);
	python_stop(&child);
	assert_true(scans > 20 && instructions > 5000);
}

VERSION_TESTS(oracle)

/* Any bytes end; ASan watches. */
static void test_any_bytes(void **state)
{
	uint64_t random = 88172645463325252ull;
	char *names[] = {"C", "append", "members", "get", "heappush"};

	(void)state;
	for (unsigned int i = 0; i < 4000; i++) {
		struct watched watched = {.name_count = 5};
		size_t bytes = i % 300;
		uint8_t *code = malloc(bytes + !bytes);
		struct opcodes opcodes;
		struct scan scan = {.opcodes = &opcodes,
				    .calls = &calls,
				    .context = &watched,
				    .code = code,
				    .bytes = bytes};

		assert_int_equal(opcodes_for(0x0308 + i % 8, &opcodes), 1);
		memcpy(watched.names, names, sizeof(names));
		for (size_t k = 0; k < bytes; k++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			code[k] = (uint8_t)(k & 1 ? random % 9 : random >> 11);
			if (!(k & 1) && !scan.opcodes->of[code[k]].code)
				code[k] = 100;
		}
		code_scan(&scan);
		free(code);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_38),        cmocka_unit_test(test_39),
		cmocka_unit_test(test_310),       cmocka_unit_test(test_311),
		cmocka_unit_test(test_312),       cmocka_unit_test(test_313),
		cmocka_unit_test(test_314),       cmocka_unit_test(test_315),
		cmocka_unit_test(test_any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
