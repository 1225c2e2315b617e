/* SPDX-License-Identifier: Apache-2.0 */
/* The relevant line of what libbpf 1.1 printed on kernels that refused our programs. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "attach/kernel/load_log.h"

static void expect(const char *const *messages, const char *text)
{
	struct load_log log = {0};

	for (size_t i = 0; messages[i]; i++)
		load_log_take(&log, messages[i]);
	assert_string_equal(log.text, text);
}

static void test_verifier(void **state)
{
	/* 6.18, lockdown=confidentiality */
	static const char *const helper[] = {
		"libbpf: prog 'native_session': BPF program load failed: Invalid argument\n",
		"libbpf: prog 'native_session': -- BEGIN PROG LOAD LOG --\n"
		"729: (b4) w2 = 1024                   ; R2=1024 refs=9\n"
		"730: (85) call bpf_probe_read#4\n"
		"program of this type cannot use helper bpf_probe_read#4\n"
		"processed 104 insns (limit 1000000) max_states_per_insn 0 total_states 9 "
		"peak_states 9 mark_read 0\n"
		"-- END PROG LOAD LOG --\n",
		"libbpf: prog 'native_session': failed to load: -22\n",
		"libbpf: failed to load object 'alloc_bpf'\n",
		NULL,
	};
	/* 6.12 */
	static const char *const stack[] = {
		"libbpf: prog 'mapping': -- BEGIN PROG LOAD LOG --\n"
		"combined stack size of 5 calls is 528. Too large\n"
		"verification time 3811 usec\n"
		"stack depth 136+80+0+112+80+120\n"
		"processed 1045 insns (limit 1000000) max_states_per_insn 1\n"
		"-- END PROG LOAD LOG --\n",
		NULL,
	};

	(void)state;
	expect(helper, "native_session: program of this type cannot use helper bpf_probe_read#4");
	expect(stack, "mapping: combined stack size of 5 calls is 528. Too large");
}

static void test_types(void **state)
{
	/* 7.2 */
	static const char *const prototype[] = {
		"libbpf: Failed to bump RLIMIT_MEMLOCK (err = -1), you might need to do it "
		"explicitly!\n",
		"libbpf: extern (func ksym) 'bpf_session_is_return': func_proto [78] incompatible "
		"with vmlinux [66391]\n",
		"libbpf: failed to load object 'alloc_bpf'\n",
		NULL,
	};

	(void)state;
	expect(prototype,
	       "extern (func ksym) 'bpf_session_is_return': func_proto [78] incompatible with "
	       "vmlinux [66391]");
}

/* Logs that are cut off, are empty, or hold only statistics; a line of the maximum length. */
static void test_odd(void **state)
{
	static const char *const nothing[] = {NULL};
	static const char *const empty[] = {
		"libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n-- END PROG LOAD LOG --\n", NULL};
	static const char *const statistics[] = {
		"libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\nprocessed 1 insns\n\n-- END PROG "
		"LOAD LOG --\n",
		NULL};
	static const char *const cut[] = {"libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\nwhy", NULL};
	static const char *const unnamed[] = {"prog -- BEGIN PROG LOAD LOG --\nwhy\n", NULL};
	char line[1000] = "libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n";
	const char *const messages[] = {line, NULL};
	struct load_log log = {0};

	(void)state;
	expect(nothing, "");
	expect(empty, "");
	expect(statistics, "");
	expect(cut, "x: why");
	expect(unnamed, ": why");
	memset(line + strlen(line), 'y', sizeof(line) - 1 - strlen(line));
	load_log_take(&log, messages[0]);
	assert_int_equal(strlen(log.text), LOAD_LOG_SIZE - 1);
}

static void test_matter(void **state)
{
	(void)state;
	assert_true(load_log_explains(-EINVAL) && load_log_explains(-EACCES) &&
		    load_log_explains(-E2BIG));
	assert_false(load_log_explains(-EPERM) || load_log_explains(-ENOMEM) ||
		     load_log_explains(-EMFILE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_verifier),
					   cmocka_unit_test(test_types), cmocka_unit_test(test_odd),
					   cmocka_unit_test(test_matter)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
