/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/links/features.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "abi/target.h"
#include "attach/kernel/preemption.h"
#include "attach/links/hints.h"
#include "attach/links/link_trial.h"
#include "util/array.h"
#include "util/descriptor.h"
#include "util/error.h"

/* PROC_PID_INIT_INO and PROC_USER_INIT_INO of include/linux/proc_ns.h. */
#define ROOT_PID_NS_INODE  0xeffffffcu
#define ROOT_USER_NS_INODE 0xeffffffdu

/*
 * The names in the kernel's type information. Each that is asked for is one of its kind, so that
 * the types need not be looked at, which takes libbpf some tens of milliseconds.
 */
struct names {
	char *data;
	size_t bytes;
};

static int btf_read(int fd, struct names *out)
{
	struct stat stat;
	size_t got = 0;

	if (fstat(fd, &stat) || stat.st_size <= 0)
		return -ENOENT;
	out->bytes = (size_t)stat.st_size;
	out->data = malloc(out->bytes);
	if (!out->data)
		return -ENOMEM;
	while (got < out->bytes) {
		ssize_t more = read(fd, out->data + got, out->bytes - got);

		if (more <= 0)
			return -EIO;
		got += (size_t)more;
	}
	return 0;
}

/* Where libbpf looks first; it knows other places, for kernels that have no such file. */
static int names_read(struct names *out)
{
	int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? error_errno() : btf_read(fd, out);
	__u32 bytes;

	descriptor_close(fd);
	if (!err)
		return 0;
	struct btf *btf = btf__load_vmlinux_btf();
	if (libbpf_get_error(btf))
		return err;
	const void *data = btf__raw_data(btf, &bytes);
	free(out->data);
	out->bytes = bytes;
	out->data = data ? malloc(bytes) : NULL;
	if (out->data)
		memcpy(out->data, data, bytes);
	btf__free(btf);
	return out->data ? 0 : -ENOMEM;
}

/* Each name is between two zero bytes. */
static int names_have(const struct names *names, const char *name)
{
	char text[64] = {0};

	snprintf(text + 1, sizeof(text) - 1, "%s", name);
	return memmem(names->data, names->bytes, text, strlen(name) + 2) != NULL;
}

/* BTF names decide only if we may not try. */
static bool link_is_possible(enum links_kind kind, int named)
{
	int possible = named ? link_trial(kind) : 0;

	return possible < 0 ? named : possible;
}

/*
 * Before 6.2 a program finds no task storage while another task, which it has preempted, is in the
 * same function of the kernel.
 */
static bool task_storage_is_found(const struct names *names)
{
	return names_have(names, "bpf_task_storage_get_recur") || !kernel_is_preempted();
}

bool features_user_ns_is_root(void)
{
	struct stat user_ns;

	/* A kernel without user namespaces has only the initial one, and no such file. */
	return stat("/proc/self/ns/user", &user_ns) || user_ns.st_ino == ROOT_USER_NS_INODE;
}

int features_probe(struct features *out)
{
	struct utsname name;
	struct stat pid_ns;
	struct names names = {0};

	memset(out, 0, sizeof(*out));
	if (uname(&name))
		return error_errno();
	snprintf(out->kernel, sizeof(out->kernel), "%s", name.release);
	out->perf_uprobe = !access("/sys/bus/event_source/devices/uprobe/type", R_OK);
	if (stat("/proc/self/ns/pid", &pid_ns))
		return error_errno();
	out->root_user_ns = features_user_ns_is_root();
	out->root_pid_ns = pid_ns.st_ino == ROOT_PID_NS_INODE;
	if (names_read(&names)) {
		free(names.data);
		return 0;
	}
	out->btf = 1;
	out->ring_buffer = names_have(&names, "BPF_MAP_TYPE_RINGBUF");
	out->task_storage = names_have(&names, "BPF_MAP_TYPE_TASK_STORAGE");
	out->attach_cookie = names_have(&names, "BPF_FUNC_get_attach_cookie");
	out->prepare_exec = names_have(&names, "btf_trace_sched_prepare_exec");
	out->bpf_loop = names_have(&names, "BPF_FUNC_loop");
	out->uprobe_session =
		link_is_possible(LINKS_BOTH, names_have(&names, "BPF_TRACE_UPROBE_SESSION"));
	out->uprobe_multi =
		out->uprobe_session ||
		link_is_possible(LINKS_ENTRY, names_have(&names, "BPF_TRACE_UPROBE_MULTI"));
	out->task_storage_holds = out->task_storage && task_storage_trial(TASK_STATE_MAX) != 0;
	out->task_storage_found = out->task_storage && task_storage_is_found(&names);
	out->returns_by_call = names_have(&names, "__x64_sys_uretprobe") ||
			       names_have(&names, "__do_sys_uretprobe");
	free(names.data);
	return 0;
}

int features_capabilities(struct capability out[8], size_t *count)
{
	static const struct {
		const char *name, *why;
		cap_value_t value;
		int required;
		int in_admin; /* the kernel takes CAP_SYS_ADMIN for it */
	} wanted[] = {
		{"CAP_BPF", "loads BPF programs and maps", CAP_BPF, 1, 1},
		{"CAP_PERFMON", "attaches tracing programs", CAP_PERFMON, 1, 1},
		{"CAP_SYS_PTRACE", "reads the target's memory and its mapped files", CAP_SYS_PTRACE,
		 1, 0},
		{"CAP_SYS_ADMIN",
		 "attaches uprobes to other users' processes, opens /proc/PID/map_files",
		 CAP_SYS_ADMIN, 1, 0},
		{"CAP_DAC_READ_SEARCH", "reads processes and files of other users",
		 CAP_DAC_READ_SEARCH, 0, 0},
	};
	cap_t caps = cap_get_proc();
	cap_flag_value_t admin = CAP_CLEAR;

	*count = 0;
	if (!caps)
		return error_errno();
	cap_get_flag(caps, CAP_SYS_ADMIN, CAP_EFFECTIVE, &admin);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		cap_flag_value_t held = CAP_CLEAR;

		cap_get_flag(caps, wanted[i].value, CAP_EFFECTIVE, &held);
		out[*count].name = wanted[i].name;
		out[*count].why = wanted[i].why;
		out[*count].required = wanted[i].required;
		out[*count].held = held == CAP_SET || (wanted[i].in_admin && admin == CAP_SET);
		(*count)++;
	}
	cap_free(caps);
	return 0;
}

int features_check(const struct features *features, const char **remedy)
{
	struct capability capabilities[8];
	size_t count;

	int err = features_capabilities(capabilities, &count);
	if (err)
		return err;
	for (size_t i = 0; i < count; i++) {
		if (capabilities[i].held || !capabilities[i].required)
			continue;
		*remedy = hint_capability_remedy();
		return error_set(-EPERM, "%s is missing (it %s)", capabilities[i].name,
				 capabilities[i].why);
	}
	if (!features->root_user_ns) {
		*remedy = "run it with sudo outside of it";
		return error_set(
			-EPERM,
			"it runs in a user namespace of its own, whose root has no rights over the "
			"kernel");
	}
	if (!features->root_pid_ns) {
		*remedy = "run it on the host, or in a container that shares the host's PID "
			  "namespace (--pid=host, hostPID: true); leaks, heap and memory place no "
			  "probe and work here";
		return error_set(
			-ENOSYS,
			"it runs in a PID namespace of its own, where process ids are not the "
			"kernel's");
	}
	if (!features->btf)
		return hint_explain(HINT_BTF,
				    error_set(-ENOSYS, "kernel %s has no type information (BTF)",
					      features->kernel),
				    remedy);
	*remedy = "boot kernel 6.1 or later; " HINT_WITHOUT_PROBES;
	if (!features->ring_buffer || !features->task_storage || !features->attach_cookie)
		return error_set(-ENOSYS, "kernel %s has no %s", features->kernel,
				 !features->ring_buffer    ? "BPF ring buffer"
				 : !features->task_storage ? "BPF task storage"
							   : "BPF attach cookies");
	*remedy = "boot a kernel with CONFIG_UPROBE_EVENTS; where /sys is covered (a sandbox), run "
		  "it outside";
	if (!features->uprobe_multi && !features->perf_uprobe)
		return error_set(-ENOSYS, "kernel %s has no uprobes", features->kernel);
	*remedy = NULL;
	return 0;
}
