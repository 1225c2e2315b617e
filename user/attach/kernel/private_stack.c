/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/kernel/private_stack.h"
#include "util/error.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CODE_MAX (1u << 20)

int private_stack_count(const unsigned char *code, size_t bytes)
{
	/*
	 * add %gs:…,%r9: the code with which arch/x86/net/bpf_jit_comp.c loads the per-CPU stack,
	 * once per function.
	 */
	static const unsigned char add_gs_r9[] = {0x65, 0x4c, 0x03, 0x0c, 0x25};
	const unsigned char *end = code + bytes;
	int count = 0;

	while ((code = memmem(code, end - code, add_gs_r9, sizeof(add_gs_r9)))) {
		code += sizeof(add_gs_r9);
		count++;
	}
	return count;
}

int private_stack_count_fd(int program)
{
	struct bpf_prog_info info = {0};
	uint32_t size = sizeof(info), bytes;
	int count;

	if (bpf_obj_get_info_by_fd(program, &info, &size))
		return error_errno();
	bytes = info.jited_prog_len;
	if (!bytes || bytes > CODE_MAX)
		return -EOPNOTSUPP;
	unsigned char *code = malloc(bytes);
	if (!code)
		return -ENOMEM;
	memset(&info, 0, sizeof(info));
	info.jited_prog_len = bytes;
	info.jited_prog_insns = (uintptr_t)code;
	size = sizeof(info);
	/* The kernel clears the address if it does not show the code (kptr_restrict). */
	if (bpf_obj_get_info_by_fd(program, &info, &size))
		count = error_errno();
	else
		count = info.jited_prog_insns ? private_stack_count(code, bytes) : -EPERM;
	free(code);
	return count;
}
