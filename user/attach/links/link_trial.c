/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/links/link_trial.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach/kernel/trial_child.h"
#include "proc/own_function.h"
#include "util/array.h"
#include "util/descriptor.h"
#include "util/error.h"

/* The probed function; it is never called. In assembly: gcc has no naked functions on arm64. */
asm(".pushsection .text\n"
    ".type trial_function, %function\n"
    "trial_function: nop\n"
    "ret\n"
    ".popsection");
__attribute__((visibility("hidden"))) extern const char trial_function[];

int link_trial_program(enum links_kind kind)
{
	const struct bpf_insn insns[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	struct bpf_prog_load_opts opts = {
		.sz = sizeof(opts),
		.expected_attach_type = (enum bpf_attach_type)links_attach_type(kind),
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_KPROBE, "link_trial", "GPL", insns, ARRAY_SIZE(insns),
			       &opts);

	return fd < 0 ? error_errno() : fd;
}

/* Links a program to a function of this child process. 1, 0; -EPERM, -EACCES. */
static int link_try(void *context)
{
	const enum links_kind *kind = context;
	char path[OWN_FUNCTION_PATH];
	uint64_t offset, cookie = 0;
	const struct links_sites sites = {.offsets = &offset, .cookies = &cookie, .count = 1};
	int program, link = own_function_find((uintptr_t)trial_function, path, &offset);

	if (link)
		return link;
	link = program = link_trial_program(*kind);
	if (program >= 0)
		link = links_multi_create(program, *kind, path, getpid(), &sites);
	return link == -EPERM || link == -EACCES ? link : link >= 0;
}

int link_trial(enum links_kind kind)
{
	return trial_child_run(link_try, &kind);
}

/* Loads BTF types of an int and of a char array of that size. Returns a descriptor, or -errno. */
static int types_load(struct btf **out, size_t bytes, int *key, int *value)
{
	struct btf *btf = btf__new_empty();
	int byte, err = btf ? 0 : -ENOMEM;

	if (err)
		return err;
	*key = btf__add_int(btf, "int", 4, BTF_INT_SIGNED);
	byte = btf__add_int(btf, "char", 1, 0);
	*value = btf__add_array(btf, *key, byte, (uint32_t)bytes);
	err = btf__load_into_kernel(btf);
	*out = btf;
	return err ?: btf__fd(btf);
}

int task_storage_trial(size_t bytes)
{
	struct btf *btf = NULL;
	int key = 0, value = 0, fd = types_load(&btf, bytes, &key, &value), err = fd < 0 ? fd : 0;
	void *blank = calloc(1, bytes);
	int map = -1, task = -1;

	if (!err) {
		struct bpf_map_create_opts opts = {
			.sz = sizeof(opts),
			.map_flags = BPF_F_NO_PREALLOC,
			.btf_fd = (uint32_t)fd,
			.btf_key_type_id = (uint32_t)key,
			.btf_value_type_id = (uint32_t)value,
		};

		map = bpf_map_create(BPF_MAP_TYPE_TASK_STORAGE, "trial", sizeof(int),
				     (uint32_t)bytes, 0, &opts);
		task = (int)syscall(SYS_pidfd_open, getpid(), 0);
		err = map < 0 || task < 0 || !blank ||
				      bpf_map_update_elem(map, &task, blank, BPF_ANY)
			      ? error_errno()
			      : 0;
	}
	descriptor_close(map);
	descriptor_close(task);
	free(blank);
	btf__free(btf);
	return err == -EPERM || err == -EACCES ? err : !err;
}
