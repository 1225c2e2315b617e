/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/links/hints.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util/array.h"
#include "util/descriptor.h"
#include "util/error.h"

#define BTF "/sys/kernel/btf/vmlinux"
#define PMU "/sys/bus/event_source/devices/uprobe/type"
#define SANDBOX                                                                                    \
	"run it outside of the sandbox; in a container: --security-opt seccomp=unconfined, or "    \
	"--privileged"
#define ANY 0 /* matches every error */

static size_t text_read(const char *path, char *out, size_t capacity)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? 0 : read(fd, out, capacity - 1);

	descriptor_close(fd);
	out[bytes > 0 ? bytes : 0] = '\0';
	return bytes > 0 ? bytes : 0;
}

static int number_read(const char *path)
{
	char text[32];

	return text_read(path, text, sizeof(text)) ? (int)strtol(text, NULL, 10) : HINT_UNKNOWN;
}

enum hint_lockdown hint_lockdown_parse(const char *text)
{
	return strstr(text, "[confidentiality]") ? LOCKDOWN_CONFIDENTIALITY
	       : strstr(text, "[integrity]")     ? LOCKDOWN_INTEGRITY
						 : LOCKDOWN_NONE;
}

void hint_facts_read(struct hint_facts *out)
{
	char lockdown[128];
	struct statfs sys;
	int fd = open(BTF, O_RDONLY | O_CLOEXEC);

	memset(out, 0, sizeof(*out));
	out->btf_error = fd < 0 ? error_errno() : 0;
	descriptor_close(fd);
	out->root = !geteuid();
	out->filtered = prctl(PR_GET_SECCOMP) == 2;
	out->perf_uprobe = !access(PMU, R_OK);
	out->sys_mounted = !statfs("/sys", &sys) && sys.f_type == SYSFS_MAGIC;
	out->perf_event_paranoid = number_read("/proc/sys/kernel/perf_event_paranoid");
	out->unprivileged_bpf_disabled = number_read("/proc/sys/kernel/unprivileged_bpf_disabled");
	text_read("/sys/kernel/security/lockdown", lockdown, sizeof(lockdown));
	out->lockdown = hint_lockdown_parse(lockdown);
}

static bool is_filtered(const struct hint_facts *facts)
{
	return facts->filtered;
}

static bool is_confidential(const struct hint_facts *facts)
{
	return facts->lockdown == LOCKDOWN_CONFIDENTIALITY;
}

static bool is_without_sys(const struct hint_facts *facts)
{
	return !facts->sys_mounted;
}

static bool is_without_pmu(const struct hint_facts *facts)
{
	return !facts->perf_uprobe;
}

/*
 * Debian and Ubuntu kernels have levels above 2, at which perf_event_open(2) is restricted to
 * privileged processes.
 */
static bool is_paranoid(const struct hint_facts *facts)
{
	return facts->perf_event_paranoid > 2;
}

/* The first matching row is used. */
static const struct hints_row {
	unsigned int steps;                           /* enum hint_step */
	int error;                                    /* or ANY */
	bool (*fits)(const struct hint_facts *facts); /* NULL: always */
	struct hint hint;
} rows[] = {
	{HINT_BTF,
	 ANY,
	 is_without_sys,
	 {"there is no sysfs at /sys", "mount it: mount -t sysfs sysfs /sys"}},
	{HINT_BTF,
	 -ENOENT,
	 NULL,
	 {"there is no " BTF,
	  "boot a kernel with CONFIG_DEBUG_INFO_BTF, as distributions have it since 2021; where "
	  "/sys/kernel is covered (a sandbox), run it outside; " HINT_WITHOUT_PROBES}},
	{HINT_BTF,
	 -EACCES,
	 NULL,
	 {BTF " cannot be opened", "run it with sudo, outside of a sandbox"}},
	{HINT_BTF,
	 -EPERM,
	 NULL,
	 {BTF " cannot be opened", "run it with sudo, outside of a sandbox"}},
	{HINT_BTF,
	 ANY,
	 NULL,
	 {BTF " cannot be read",
	  "boot a kernel with CONFIG_DEBUG_INFO_BTF, or one of your distribution"}},

	/*
	 * The order matters: a filter can return any errno, and these are the ones that filters use
	 * (Docker: EPERM, systemd: EPERM).
	 */
	{HINT_LOAD, -EPERM, is_filtered, {"a seccomp filter refuses bpf(2)", SANDBOX}},
	{HINT_LOAD, -ENOSYS, is_filtered, {"a seccomp filter refuses bpf(2)", SANDBOX}},
	{HINT_LOAD,
	 -ENOSYS,
	 NULL,
	 {"this kernel was built without bpf(2)", "boot a kernel with CONFIG_BPF_SYSCALL"}},
	/*
	 * The kernel then fails with -EINVAL: "program of this type cannot use helper
	 * bpf_probe_read".
	 */
	{HINT_LOAD,
	 ANY,
	 is_confidential,
	 {"the kernel is locked down (confidentiality), and BPF may not read its memory",
	  "boot with lockdown=integrity or without lockdown"}},
	/* Since 5.11 BPF memory is charged to a cgroup, and RLIMIT_MEMLOCK does not apply. */
	{HINT_LOAD,
	 -ENOMEM,
	 NULL,
	 {"the memory for its tables and its ring buffer is refused, in most cases by the limit of "
	  "its cgroup",
	  "use a smaller --buffer, or give its cgroup more memory"}},
	{HINT_LOAD,
	 -EMFILE,
	 NULL,
	 {"it may not open enough files for its programs and tables",
	  "allow it more: ulimit -n 1024"}},
	{HINT_LOAD,
	 -EPERM,
	 NULL,
	 {"a security module or a lost capability forbids bpf(2)",
	  "journalctl -k shows which; in a container: --privileged --pid=host"}},
	{HINT_LOAD,
	 -EACCES,
	 NULL,
	 {"its verifier rejects them",
	  "please report this; `tracer doctor -v` shows its whole log"}},
	{HINT_LOAD,
	 -E2BIG,
	 NULL,
	 {"its verifier finds them too large",
	  "please report this; `tracer doctor -v` shows its whole log"}},
	{HINT_LOAD,
	 ANY,
	 NULL,
	 {NULL, "please report this; `tracer doctor -v` shows its whole log"}},

	{HINT_PROBE | HINT_EVENT, -EPERM, is_filtered, {"a seccomp filter refuses it", SANDBOX}},
	{HINT_PROBE | HINT_EVENT, -ENOSYS, is_filtered, {"a seccomp filter refuses it", SANDBOX}},
	{HINT_PROBE,
	 -EOPNOTSUPP,
	 NULL,
	 {"this kernel was built without uprobes", "boot a kernel with CONFIG_UPROBE_EVENTS"}},
	{HINT_PROBE,
	 -ENOENT,
	 is_without_pmu,
	 {"there is no " PMU,
	  "boot a kernel with CONFIG_UPROBE_EVENTS; where /sys is covered (a sandbox), run it "
	  "outside"}},
	{HINT_PROBE,
	 -EMFILE,
	 NULL,
	 {"each probe takes one of its file descriptors on this kernel",
	  "allow it more: ulimit -n 65536"}},
	{HINT_PROBE | HINT_EVENT,
	 -EACCES,
	 is_paranoid,
	 {"kernel.perf_event_paranoid restricts perf events to privileged processes",
	  "run it with sudo, or give it CAP_PERFMON"}},
	{HINT_PROBE | HINT_EVENT,
	 -EPERM,
	 NULL,
	 {"a security module or a lost capability forbids it",
	  "journalctl -k shows which; in a container: --privileged --pid=host"}},
	{HINT_PROBE | HINT_EVENT,
	 -EACCES,
	 NULL,
	 {"a security module or a lost capability forbids it",
	  "journalctl -k shows which; in a container: --privileged --pid=host"}},
};

const struct hint *hint_find(const struct hint_facts *facts, enum hint_step step, int err)
{
	if (step == HINT_BTF)
		err = facts->btf_error;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct hints_row *row = &rows[i];

		if (row->steps & step && (row->error == ANY || row->error == err) &&
		    (!row->fits || row->fits(facts)))
			return &row->hint;
	}
	return NULL;
}

int hint_explain(enum hint_step step, int err, const char **remedy)
{
	struct hint_facts facts;

	hint_facts_read(&facts);
	const struct hint *hint = hint_find(&facts, step, err);
	if (!hint)
		return err;
	*remedy = hint->remedy;
	return hint->what ? error_set(err, "%s: %s", error_reason(err), hint->what) : err;
}

int hint_tell(enum hint_step step, int err)
{
	const char *remedy = NULL;

	hint_explain(step, err, &remedy);
	return remedy ? error_set(-EIO, "%s; %s", error_reason(err), remedy) : err;
}

const char *hint_capability_remedy(void)
{
	/* If root lacks a capability it was denied, and sudo does not restore it. */
	return geteuid() ? "run it with sudo"
			 : "sudo gives no more here; in a container: --privileged --pid=host, or "
			   "--pid=host --cap-add SYS_PTRACE --cap-add SYS_ADMIN "
			   "--cap-add DAC_READ_SEARCH";
}
