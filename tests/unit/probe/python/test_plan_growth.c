/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of growth mode, for the interpreters of this machine and for this program's own libc. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/events.h"
#include "object/insn/machine.h"
#include "probe/process/plan_memory.h"
#include "probe/pymalloc/pool.h"
#include "probe/python/plan_finalize.h"
#include "pythons.h"
#include "ranges.h"

static int plan_file(const char *path, const struct plan_opts *opts, struct plan *plan)
{
	struct elf_file *file;
	int fd = open(path, O_RDONLY | O_CLOEXEC), err;

	assert_true(fd >= 0);
	assert_int_equal(elf_file_open(&file, fd, path, "/dev/null"), 0);
	err = plan_python(file, opts, plan);
	elf_file_close(file);
	return err;
}

static unsigned int sites_of(const struct plan *plan, enum abi_op op)
{
	unsigned int count = 0;

	for (size_t i = 0; i < plan->count; i++)
		count += plan->sites[i].op == op;
	return count;
}

/* Besides all other sites, if they are asked for. */
static void check_beside(const char *path)
{
	struct plan_opts opts = {.mode = EVENT_MODE_CENSUS, .pool_bytes = 4096};
	struct plan plan;
	size_t others;

	assert_int_equal(plan_file(path, &opts, &plan), 0);
	assert_int_equal(sites_of(&plan, ABI_OP_NEW_POOL), 0);
	others = plan.count;
	plan_free(&plan);
	opts.pools = 1;
	assert_int_equal(plan_file(path, &opts, &plan), 0);
	assert_uint_in_range(sites_of(&plan, ABI_OP_NEW_POOL), 1, 4);
	assert_int_equal(plan.count - sites_of(&plan, ABI_OP_NEW_POOL), others);
	plan_free(&plan);
}

static void check(const char *path)
{
	struct plan_opts opts = {.mode = EVENT_MODE_GROWTH, .pool_bytes = 4096};
	struct plan plan;

	assert_int_equal(plan_file(path, &opts, &plan), 0);
	assert_int_equal(plan.mode, EVENT_MODE_GROWTH);
	assert_uint_in_range(sites_of(&plan, ABI_OP_NEW_POOL), 1, 4);
	for (size_t i = 0; i < plan.count; i++) {
		const struct plan_site *site = &plan.sites[i];

		if (site->op != ABI_OP_NEW_POOL)
			continue;
		if (!site->emulated)
			fail_msg("%s: %s: %s", path, site->symbol, site->instruction);
		assert_int_equal(site->cookie >> 8 & 0xff, EVENT_API_POOL);
		assert_int_equal(site->cookie >> 40, 12);
	}
	/* Sites that would add a cost to every request are not in the plan. */
	assert_int_equal(sites_of(&plan, ABI_OP_POOL) + sites_of(&plan, ABI_OP_POOL_FREE), 0);
	assert_int_equal(sites_of(&plan, ABI_OP_REUSE) + sites_of(&plan, ABI_OP_FREE), 0);
	assert_int_equal(sites_of(&plan, ABI_OP_MALLOC) + sites_of(&plan, ABI_OP_REFILL), 0);
	assert_uint_in_range(sites_of(&plan, ABI_OP_FINALIZE), 1, 2 * PLAN_PIECES);
	assert_false(plan.large_blocks || plan.complete);
	plan_free(&plan);
	opts.large_blocks = 1;
	assert_int_equal(plan_file(path, &opts, &plan), 0);
	assert_true(plan.large_blocks);
	assert_true(sites_of(&plan, ABI_OP_MALLOC) && sites_of(&plan, ABI_OP_FREE));
	plan_free(&plan);
	check_beside(path);
}

static void test_symbols(void **state)
{
	char path[PATH_MAX];
	int seen = 0;
	(void)state;

	for (unsigned int minor = 8; minor <= 13; minor++) {
		if (!libpython_path(minor, path))
			continue;
		check(path);
		seen++;
	}
	if (!seen) {
		print_message("no pyenv with shared libraries\n");
		skip();
	}
}

static void test_distribution(void **state)
{
	(void)state;

	if (access("/usr/bin/python3.11", R_OK)) {
		print_message("no /usr/bin/python3.11\n");
		skip();
	}
	check("/usr/bin/python3.11");
}

/*
 * A file without such a function and a file that is not Python are refused, not traced as something
 * else.
 */
static void test_no_pools(void **state)
{
	const struct plan_opts opts = {.mode = EVENT_MODE_GROWTH};
	struct plan plan;
	(void)state;

	assert_int_equal(plan_file("/proc/self/exe", &opts, &plan), -ENOTSUP);
}

static void test_libc(void **state)
{
	static const enum abi_op ops[] = {ABI_OP_MUNMAP, ABI_OP_MMAP, ABI_OP_MREMAP,
					  ABI_OP_MPROTECT, ABI_OP_BRK};
	struct elf_file *libc;
	struct plan plan;
	(void)state;

	assert_int_equal(plan_memory_process(getpid(), &libc, &plan), 0);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		assert_uint_in_range(sites_of(&plan, ops[i]), 1, 4);
	for (size_t i = 0; i < plan.count; i++) {
		assert_false(plan.sites[i].with_return);
		/* The probe is before the system call. */
		if (plan.sites[i].op == ABI_OP_MUNMAP)
			assert_int_equal(plan.sites[i].in_function, 0);
	}
	assert_true(plan.program_break == 0 || plan.program_break % 4096 == 0);
	plan_free(&plan);
	elf_file_close(libc);
}

#define MUSL "/usr/lib/x86_64-linux-musl/libc.so"

/* Its brk makes no system call. That is reported, and the other calls are probed. */
static void test_musl(void **state)
{
	int fd = open(MUSL, O_RDONLY | O_CLOEXEC);
	struct elf_file *libc;
	struct plan plan;
	(void)state;

	if (fd < 0) {
		printf("no %s on this machine (musl-tools)\n", MUSL);
		skip();
	}
	assert_int_equal(elf_file_open(&libc, fd, MUSL, NULL), 0);
	assert_int_equal(plan_memory(libc, &plan), 0);
	assert_uint_in_range(sites_of(&plan, ABI_OP_MUNMAP), 1, 4);
	assert_uint_in_range(sites_of(&plan, ABI_OP_MMAP), 1, 4);
	assert_uint_in_range(sites_of(&plan, ABI_OP_MREMAP), 1, 4);
	assert_int_equal(sites_of(&plan, ABI_OP_BRK), 0);
	assert_int_equal(plan.missing_count, 1);
	assert_string_equal(plan.missing[0].symbol, "brk");
	plan_free(&plan);
	elf_file_close(libc);
}

/*
 * f:	movl $1,(%rdx); cmp %esi,%ebx; je 1f; mov %rax,0x8(%rdx); ret  # a pool in rdx, 401008
 * 	movl $1,(%rax); mov %rcx,0x8(%rdx); ret					# another register
 * 	movl $2,(%rdx); cmp %esi,%ebx; je 1f; mov %rax,0x8(%rdx); ret		# another value
 * 	movl $1,(%r12); mov %rax,0x8(%r12); ret  # in r12, no branch: 401031
 * 	movl $1,0x0(%r13); xor %r13d,%r13d; mov %rax,0x8(%r13); ret		# overwritten before
 * 1:	ret
 */
static const uint8_t program[] = {
	/* 0x00 */
	0xc7, 0x02, 0x01, 0x00, 0x00, 0x00, 0x39, 0xf3, 0x74, 0x47, 0x48, 0x89, 0x42, 0x08, 0xc3,
	/* 0x0f */
	0xc7, 0x00, 0x01, 0x00, 0x00, 0x00, 0x48, 0x89, 0x4a, 0x08, 0xc3,
	/* 0x1a */
	0xc7, 0x02, 0x02, 0x00, 0x00, 0x00, 0x39, 0xf3, 0x74, 0x2d, 0x48, 0x89, 0x42, 0x08, 0xc3,
	/* 0x29 */
	0x41, 0xc7, 0x04, 0x24, 0x01, 0x00, 0x00, 0x00, 0x49, 0x89, 0x44, 0x24, 0x08, 0xc3, 0x41,
	0xc7, 0x45, 0x00, 0x01, 0x00, 0x00, 0x00, 0x45, 0x31, 0xed, 0x49, 0x89, 0x45, 0x08,
	0xc3,                                                             /* 0x37 */
	0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3, /* 0x47 */
};

static void test_shapes(void **state)
{
	static const uint64_t starts[] = {0x401000};
	struct inline_image image = {.machine = &machine_x86,
				     .text = {program, 0x401000, sizeof(program)},
				     .starts = starts,
				     .start_count = 1};
	struct inline_new_pool found[4];
	struct inline_code code;
	int emulated = 1;
	(void)state;

	assert_int_equal(inline_code_open(&code, &image), 0);
	assert_int_equal(inline_new_pools(&code, 0x401000, found, 1, &emulated), 1);
	assert_int_equal(found[0].site, 0x401008);
	assert_int_equal(found[0].reg, ABI_REG_DX);
	assert_int_equal(emulated, 1);
	assert_int_equal(inline_new_pools(&code, 0x401000, found, 4, &emulated), 2);
	assert_int_equal(found[1].site, 0x401031);
	assert_int_equal(found[1].reg, ABI_REG_R12);
	assert_int_equal(emulated, 0);
	assert_int_equal(inline_new_pools(&code, 0x500000, found, 4, &emulated), 0);
	inline_code_close(&code);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symbols),  cmocka_unit_test(test_distribution),
		cmocka_unit_test(test_no_pools), cmocka_unit_test(test_libc),
		cmocka_unit_test(test_musl),     cmocka_unit_test(test_shapes)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
