/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes task storage of its own, without a pause, in as many processes as the argument says: each
 * is mostly in the part of the kernel in which, before 6.2, no BPF program finds task storage on
 * that processor. Ends with its input.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	struct btf_header header;
	struct btf_type type;
	uint32_t encoding;
	char names[5];
} types = {
	.header = {.magic = BTF_MAGIC,
		   .version = BTF_VERSION,
		   .hdr_len = sizeof(struct btf_header),
		   .type_len = sizeof(struct btf_type) + sizeof(uint32_t),
		   .str_off = sizeof(struct btf_type) + sizeof(uint32_t),
		   .str_len = 5},
	.type = {.name_off = 1, .info = BTF_KIND_INT << 24, .size = sizeof(int)},
	.encoding = 32,
	.names = "\0int",
};

static int bpf(enum bpf_cmd command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int map_new(void)
{
	union bpf_attr btf = {.btf = (uintptr_t)&types,
			      .btf_size = sizeof(types.header) + types.header.str_off +
					  types.header.str_len};
	union bpf_attr map = {.map_type = BPF_MAP_TYPE_TASK_STORAGE,
			      .key_size = sizeof(int),
			      .value_size = sizeof(int),
			      .map_flags = BPF_F_NO_PREALLOC,
			      .btf_key_type_id = 1,
			      .btf_value_type_id = 1};

	map.btf_fd = (uint32_t)bpf(BPF_BTF_LOAD, &btf);
	return bpf(BPF_MAP_CREATE, &map);
}

static void change(int map)
{
	int task = (int)syscall(SYS_pidfd_open, getpid(), 0), value = 0;
	union bpf_attr attr = {
		.map_fd = (uint32_t)map, .key = (uintptr_t)&task, .value = (uintptr_t)&value};

	for (;; value++)
		if (bpf(BPF_MAP_UPDATE_ELEM, &attr)) {
			perror("update");
			_exit(1);
		}
}

int main(int argc, char **argv)
{
	int map = map_new();

	if (map < 0) {
		perror("task storage");
		return 1;
	}
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--)
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			change(map);
		}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
