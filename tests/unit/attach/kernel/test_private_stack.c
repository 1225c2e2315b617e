/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <bpf/bpf.h>
#include <cmocka.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "attach/kernel/private_stack.h"

static void test_count(void **state)
{
	static const unsigned char code[] = {0xc3, 0x65, 0x4c, 0x03, 0x0c, 0x25, 0,    0,
					     0,    0,    0xc3, 0x65, 0x4c, 0x03, 0x0c, 0x25,
					     0,    0,    0,    0,    0x65, 0x4c};

	(void)state;
	assert_int_equal(private_stack_count(code, sizeof(code)), 2);
	assert_int_equal(private_stack_count(code, 5), 0);
	assert_int_equal(private_stack_count(code, 0), 0);
}

/*
 * Loads a program with that many bytes of variables. It is one of a tracepoint: kernels that were
 * mended give those of probes no private stack.
 */
static int program_load(int bytes)
{
	const struct bpf_insn insns[] = {
		{.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .off = -bytes},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};

	return bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "frame", "GPL", insns,
			     sizeof(insns) / sizeof(insns[0]), NULL);
}

static int kernel_has_private_stacks(void)
{
	struct utsname name;
	int major = 0, minor = 0;

	uname(&name);
	sscanf(name.release, "%d.%d", &major, &minor);
	return major > 6 || (major == 6 && minor >= 13);
}

/* This kernel gives a private stack to a function of 56 bytes, and none to one of 48. */
static void test_kernel(void **state)
{
	int small = program_load(48), large = program_load(56);

	(void)state;
	if (small < 0 && (errno == EPERM || errno == EACCES))
		skip();
	assert_int_equal(private_stack_count_fd(small), 0);
	assert_int_equal(private_stack_count_fd(large), kernel_has_private_stacks());
	close(small);
	close(large);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_count),
					   cmocka_unit_test(test_kernel)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
