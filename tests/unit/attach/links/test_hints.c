/* SPDX-License-Identifier: Apache-2.0 */
/* The reason for a kernel's refusal, on simulated machines. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "attach/links/hints.h"
#include "util/error.h"

static const struct hint_facts plain = {
	.root = 1, .perf_uprobe = 1, .sys_mounted = 1, .perf_event_paranoid = 2};

/* Expects a word of the reason and a word of the remedy. NULL: there is none. */
static void expect(const struct hint_facts *facts, enum hint_step step, int err, const char *what,
		   const char *remedy)
{
	const struct hint *hint = hint_find(facts, step, err);

	if (!remedy) {
		assert_null(hint);
		return;
	}
	assert_non_null(hint);
	assert_true(what ? hint->what && strstr(hint->what, what) : !hint->what);
	assert_non_null(strstr(hint->remedy, remedy));
}

static void test_types(void **state)
{
	struct hint_facts facts = plain;

	(void)state;
	facts.btf_error = -ENOENT;
	expect(&facts, HINT_BTF, -ENOSYS, "no /sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF");
	facts.btf_error = -EACCES;
	expect(&facts, HINT_BTF, -ENOSYS, "cannot be opened", "sudo");
	facts.btf_error = 0; /* it exists, but its content is invalid */
	expect(&facts, HINT_BTF, -ENOSYS, "cannot be read", "distribution");
	facts.sys_mounted = 0;
	expect(&facts, HINT_BTF, -ENOSYS, "no sysfs", "mount");
}

static void test_load(void **state)
{
	struct hint_facts filtered = plain, locked = plain;

	(void)state;
	filtered.filtered = 1;
	locked.lockdown = LOCKDOWN_CONFIDENTIALITY;
	expect(&plain, HINT_LOAD, -EPERM, "security module", "journalctl");
	expect(&filtered, HINT_LOAD, -EPERM, "seccomp", "seccomp=unconfined");
	expect(&filtered, HINT_LOAD, -ENOSYS, "seccomp", "seccomp=unconfined");
	expect(&plain, HINT_LOAD, -ENOSYS, "built without bpf(2)", "CONFIG_BPF_SYSCALL");
	/* The verifier returns the same number for any program that it refuses. */
	expect(&locked, HINT_LOAD, -EINVAL, "confidentiality", "lockdown=integrity");
	locked.lockdown = LOCKDOWN_INTEGRITY;
	expect(&locked, HINT_LOAD, -EINVAL, NULL, "doctor -v");
	expect(&plain, HINT_LOAD, -EACCES, "verifier", "doctor -v");
	expect(&plain, HINT_LOAD, -ENOMEM, "cgroup", "--buffer");
}

static void test_probe(void **state)
{
	struct hint_facts facts = plain;

	(void)state;
	expect(&plain, HINT_PROBE, -EOPNOTSUPP, "without uprobes", "CONFIG_UPROBE_EVENTS");
	expect(&plain, HINT_PROBE, -EMFILE, "descriptors", "ulimit -n");
	expect(&plain, HINT_PROBE, -ESRCH, NULL,
	       NULL); /* the process has ended: there is no hint */
	expect(&plain, HINT_PROBE, -ENOENT, NULL, NULL);
	facts.perf_uprobe = 0;
	expect(&facts, HINT_PROBE, -ENOENT, "devices/uprobe", "CONFIG_UPROBE_EVENTS");
	expect(&plain, HINT_EVENT, -EACCES, "security module", "journalctl");
	facts.perf_event_paranoid = 4; /* Debian, Ubuntu */
	expect(&facts, HINT_EVENT, -EACCES, "perf_event_paranoid", "CAP_PERFMON");
	facts.filtered = 1;
	expect(&facts, HINT_EVENT, -EPERM, "seccomp", "seccomp=unconfined");
}

static void test_lockdown(void **state)
{
	(void)state;
	assert_int_equal(hint_lockdown_parse(""), LOCKDOWN_NONE);
	assert_int_equal(hint_lockdown_parse("[none] integrity confidentiality\n"), LOCKDOWN_NONE);
	assert_int_equal(hint_lockdown_parse("none [integrity] confidentiality\n"),
			 LOCKDOWN_INTEGRITY);
	assert_int_equal(hint_lockdown_parse("none integrity [confidentiality]\n"),
			 LOCKDOWN_CONFIDENTIALITY);
}

/* The reason that the leaf function set comes first. */
static void test_explain(void **state)
{
	const char *remedy = "as it was";
	int err = error_set(-ESRCH, "process 7 is gone");

	(void)state;
	assert_int_equal(hint_explain(HINT_PROBE, err, &remedy), -ESRCH);
	assert_string_equal(remedy, "as it was");
	assert_string_equal(error_reason(-ESRCH), "process 7 is gone");
	assert_int_equal(hint_tell(HINT_PROBE, err), -ESRCH);
	err = error_set(-EMFILE, "uprobe at 0x10");
	assert_int_equal(hint_explain(HINT_PROBE, err, &remedy), -EMFILE);
	assert_non_null(strstr(error_reason(-EMFILE), "uprobe at 0x10: each probe takes"));
	assert_non_null(strstr(remedy, "ulimit"));
	error_set(-EMFILE, "uprobe at 0x10");
	assert_int_equal(hint_tell(HINT_PROBE, -EMFILE), -EIO);
	assert_non_null(strstr(error_reason(-EIO), "; allow it more: ulimit"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types), cmocka_unit_test(test_load),
		cmocka_unit_test(test_probe), cmocka_unit_test(test_lockdown),
		cmocka_unit_test(test_explain)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
