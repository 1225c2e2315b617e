/* SPDX-License-Identifier: Apache-2.0 */
/* Probe plans for native allocators, made for the test and real. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/events.h"
#include "native_plans.h"
#include "object/elf/elf_file.h"
#include "object/insn/machine.h"
#include "probe/malloc/native_code.h"
#include "probe/malloc/plan_native.h"
#include "util/error.h"

#define VADDR 0x1000

static void expect_none(const struct plan *plan, const char *symbol)
{
	for (size_t i = 0; i < plan->count; i++)
		assert_string_not_equal(plan->sites[i].symbol, symbol);
}

static void test_families(void **state)
{
	struct elf_file *file = library(
		FUNCTION("malloc", "push %rbx\npop %rbx\nret") /* */
		FUNCTION("calloc", "push %rbx\npop %rbx\nret")
			FUNCTION("realloc", "push %rbx\npop %rbx\nret")
				FUNCTION("posix_memalign", "push %rbx\npop %rbx\nret")
					FUNCTION("memalign", "push %rbx\npop %rbx\nret")
						FUNCTION("free", "nop\nret") FUNCTION("je_xallocx",
										      "nop\nret")
							FUNCTION("mi_heap_recalloc", "nop\nret")
								FUNCTION("unrelated", "nop\nret"));
	struct plan plan;
	(void)state;

	assert_int_equal(plan_native(file, NULL, &plan), 0);
	assert_int_equal(plan.mode, EVENT_MODE_EXACT);
	assert_int_equal(plan.count, 8);
	assert_int_equal(plan.missing_count, 0);
	expect_site(&plan, "malloc", ABI_OP_MALLOC, ABI_REG_DI, NONE, NONE, 1);
	expect_site(&plan, "calloc", ABI_OP_CALLOC, ABI_REG_DI, ABI_REG_SI, NONE, 1);
	expect_site(&plan, "realloc", ABI_OP_REALLOC, ABI_REG_DI, ABI_REG_SI, NONE, 1);
	expect_site(&plan, "posix_memalign", ABI_OP_POSIX_MEMALIGN, ABI_REG_DI, ABI_REG_DX, NONE,
		    1);
	expect_site(&plan, "memalign", ABI_OP_MALLOC, ABI_REG_SI, NONE, NONE, 1);
	expect_site(&plan, "free", ABI_OP_FREE, ABI_REG_DI, NONE, NONE, 0);
	expect_site(&plan, "je_xallocx", ABI_OP_XALLOCX, ABI_REG_DI, ABI_REG_SI, NONE, 1);
	expect_site(&plan, "mi_heap_recalloc", ABI_OP_REALLOCARRAY, ABI_REG_SI, ABI_REG_DX,
		    ABI_REG_CX, 1);
	plan_free(&plan);
	elf_file_close(file);
}

/*
 * Several names of one address give one site. Names without code in the file and names of data give
 * none. An IFUNC is reported.
 */
static void test_names(void **state)
{
	struct elf_file *file = library(FUNCTION(
		"malloc", "nop\nret") ".globl __libc_malloc, valloc\n.set __libc_malloc, malloc\n"
				      ".type free, @function\nfree: nop\nret\n.size free, .-free\n"
				      ".globl caller\ncaller: call realloc@plt\nret\n"
				      ".globl calloc\n.type calloc, @gnu_indirect_function\n"
				      "calloc: nop\nret\n"
				      ".data\n.globl memalign\n.type memalign, @object\n"
				      "memalign: .quad 0\n.size memalign, 8\n");
	struct plan plan;
	(void)state;

	assert_int_equal(plan_native(file, NULL, &plan), 0);
	assert_int_equal(plan.count, 2);
	expect_site(&plan, "malloc", ABI_OP_MALLOC, ABI_REG_DI, NONE, NONE, 1);
	/* local, as in a static program */
	expect_site(&plan, "free", ABI_OP_FREE, ABI_REG_DI, NONE, NONE, 0);
	assert_int_equal(plan.missing_count, 1);
	expect_missing(&plan, "calloc", "IFUNC");
	plan_free(&plan);
	elf_file_close(file);
	file = library(FUNCTION("unrelated", "jmp malloc@plt"));
	assert_int_equal(plan_native(file, NULL, &plan), -ENOENT);
	elf_file_close(file);
}

/*
 * A function that only passes a request on is not probed; the function that it jumps to is. A
 * function that does more is probed.
 */
static void test_jumps(void **state)
{
	struct elf_file *file = library(
		FUNCTION("_ZdlPv", "endbr64\njmp free@plt")                          /* libstdc++ */
		FUNCTION("_ZdlPvmSt11align_val_t", "mov %rdx, %rsi\njmp _ZdlPv@plt") /* libstdc++ */
		FUNCTION("reallocarray", "mov %rsi, %rax\nmul %rdx\nmov %rax, %rsi\njo 1f\n"
					 "jmp realloc@plt\n1: xor %eax, %eax\nret") /* glibc 2.36 */
		/* musl */
		FUNCTION("aligned_alloc", "nop\nret") FUNCTION("memalign", "jmp aligned_alloc")
		/* writes memory */
		FUNCTION("valloc", "mov %rdi, (%rsi)\njmp aligned_alloc")
		/* does not always jump */
		FUNCTION("calloc", "test %rdi, %rdi\nje 1f\njmp calloc@plt\n1: ret")
		/* has another meaning */
		FUNCTION("malloc", "jmp calloc@plt")
			FUNCTION("cfree", "jmp other@plt") /* unknown target */
		FUNCTION("mi_strdup", "jmp mi_heap_strdup@plt")
			FUNCTION("mi_heap_strdup", "call malloc@plt\nret")
				FUNCTION("mi_strndup", "nop\nret"));
	struct plan plan;
	(void)state;

	assert_int_equal(plan_native(file, NULL, &plan), 0);
	expect_none(&plan, "_ZdlPv");
	expect_none(&plan, "_ZdlPvmSt11align_val_t");
	expect_none(&plan, "reallocarray");
	expect_none(&plan, "memalign");
	expect_site(&plan, "aligned_alloc", ABI_OP_MALLOC, ABI_REG_SI, NONE, NONE, 1);
	expect_site(&plan, "valloc", ABI_OP_MALLOC, ABI_REG_DI, NONE, NONE, 1);
	expect_site(&plan, "calloc", ABI_OP_CALLOC, ABI_REG_DI, ABI_REG_SI, NONE, 1);
	expect_site(&plan, "malloc", ABI_OP_MALLOC, ABI_REG_DI, NONE, NONE, 1);
	expect_site(&plan, "cfree", ABI_OP_FREE, ABI_REG_DI, NONE, NONE, 0);
	assert_int_equal(plan.count, 5);
	assert_int_equal(plan.missing_count, 1);
	expect_missing(&plan, "mi_strndup", "size");
	plan_free(&plan);
	elf_file_close(file);
}

/* operator new: no return probe in a function through which an exception may pass. */
static void test_throws(void **state)
{
	struct elf_file *file = library(
		FUNCTION("_Znwm",
			 "endbr64\npush %rbx\ncall malloc@plt\ntest %rax, %rax\nje 1f\npop %rbx\n"
			 "ret\n"
			 "1: call __cxa_throw@plt") /* libstdc++ */
		FUNCTION("_ZnwmSt11align_val_t",
			 "cmp $4, %rdi\nja 1f\nmov (%rdi), %rax\nret\n1: jmp slow") /* jemalloc */
		FUNCTION("_ZnamSt11align_val_t", "push %rbx\njmp *%rax") FUNCTION(
			"_ZnwmRKSt9nothrow_t",
			"push %rbx\npop %rbx\nret") ".type slow, @function\nslow: push %rbx\ncall "
						    "get@plt\npop %rbx\ntest %rax, %rax\nje 1f\n"
						    "ret\n"
						    "1: call __cxa_throw@plt\n.size slow, "
						    ".-slow\n" FUNCTION("next", "nop\nret"));
	struct plan plan;
	size_t ends = 0;
	(void)state;

	assert_int_equal(plan_native(file, NULL, &plan), 0);
	expect_site(&plan, "_Znwm", ABI_OP_CALLER, NONE, NONE, NONE, 0);
	expect_site(&plan, "_ZnwmSt11align_val_t", ABI_OP_MALLOC, ABI_REG_DI, NONE, NONE, 0);
	expect_site(&plan, "_ZnwmSt11align_val_t", ABI_OP_END, ABI_REG_AX, NONE, NONE, 0);
	expect_site(&plan, "_ZnwmRKSt9nothrow_t", ABI_OP_MALLOC, ABI_REG_DI, NONE, NONE, 1);
	for (size_t i = 0; i < plan.count; i++)
		ends += plan.sites[i].op == ABI_OP_END;
	assert_int_equal(ends, 2); /* its own ret and that of slow, not the next function's */
	assert_int_equal(plan.count, 5);
	expect_missing(&plan, "_ZnamSt11align_val_t", "ends");
	plan_free(&plan);
	elf_file_close(file);

	/* Nothing in the file throws (mimalloc, compiled as C). */
	file = library(FUNCTION("_Znwm", "push %rbx\npop %rbx\nret"));
	assert_int_equal(plan_native(file, NULL, &plan), 0);
	expect_site(&plan, "_Znwm", ABI_OP_MALLOC, ABI_REG_DI, NONE, NONE, 1);
	plan_free(&plan);
	elf_file_close(file);
}

/* A corrupt table of symbols is not treated as a table without allocators. */
static void test_corrupt(void **state)
{
	struct elf_file *file = library(FUNCTION("malloc", "nop\nret"));
	struct elf_file *broken;
	struct plan plan;
	Elf64_Ehdr header;
	int from = elf_file_fd(file), to = memfd_create("broken", MFD_CLOEXEC);
	char bytes[65536];
	ssize_t size = pread(from, bytes, sizeof(bytes), 0);
	(void)state;

	memcpy(&header, bytes, sizeof(header));
	for (unsigned i = 0; i < header.e_shnum; i++) {
		Elf64_Shdr section;
		char *at = bytes + header.e_shoff + i * sizeof(section);

		assert_true(at + sizeof(section) <= bytes + size);
		memcpy(&section, at, sizeof(section));
		if (section.sh_type == SHT_DYNSYM || section.sh_type == SHT_SYMTAB)
			section.sh_entsize = 1;
		memcpy(at, &section, sizeof(section));
	}
	assert_int_equal(write(to, bytes, (size_t)size), size);
	assert_int_equal(elf_file_open(&broken, to, "broken", "/nonexistent"), 0);
	assert_int_equal(plan_native(broken, NULL, &plan), -ENOEXEC);
	assert_non_null(strstr(error_reason(-ENOEXEC), "corrupt"));
	elf_file_close(broken);
	elf_file_close(file);
}

static int known_never(void *context, uint64_t target, int slot)
{
	(void)context;
	(void)target;
	(void)slot;
	return 0;
}

/* Code that is cut off within an instruction, and bytes that are not code. */
static void test_cut(void **state)
{
	static const uint8_t jump[] = {0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 0, 0}, bad[] = {0x06, 0x06};
	static const uint8_t stub[] = {0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x10, 0, 0, 0};
	struct inline_decoder decoder = {0};
	struct native_code code = {.decoder = &decoder, .vaddr = VADDR, .known = known_never};
	(void)state;

	assert_int_equal(inline_decoder_open(&decoder, &machine_x86), 0);
	for (size_t bytes = 0; bytes <= sizeof(jump); bytes++) {
		code.bytes = jump;
		code.count = bytes;
		assert_int_equal(native_only_jumps(&code, 0), 0);
		assert_int_equal(native_calls_known(&code), 0);
		assert_int_equal(native_stub_slot(&decoder, jump, bytes, VADDR), 0);
	}
	code.bytes = bad;
	code.count = sizeof(bad);
	assert_int_equal(native_only_jumps(&code, 1), 0);
	assert_int_equal(native_stub_slot(&decoder, stub, sizeof(stub), VADDR),
			 VADDR + sizeof(stub) + 0x10);
	inline_decoder_close(&decoder);
}

struct real {
	const char *path;
	const char *symbols[12]; /* to be probed, at an emulated instruction */
};

/* The site in the function of that name. Aliases share one site, which has any of their names. */
static const struct plan_site *site_for(const struct plan *plan, struct elf_file *file,
					const char *name)
{
	struct elf_symbol symbol;

	if (elf_file_symbol(file, name, &symbol))
		return NULL;
	for (size_t i = 0; i < plan->count; i++)
		if (plan->sites[i].vaddr - plan->sites[i].in_function == symbol.vaddr)
			return &plan->sites[i];
	return NULL;
}

/*
 * Libraries of this machine: every function that serves its callers has a site at an emulated
 * instruction.
 */
static void test_real(void **state)
{
#define LIB "/usr/lib/x86_64-linux-gnu/"
	static const struct real reals[] = {
		{LIB "libc.so.6",
		 {"malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc"}},
		{LIB "libstdc++.so.6", {"_Znwm", "_ZnwmSt11align_val_t"}},
		{LIB "libjemalloc.so.2",
		 {"malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc",
		  "mallocx", "xallocx", "sdallocx", "_Znwm", "_ZdlPvm"}},
		{LIB "libtcmalloc_minimal.so.4",
		 {"malloc", "calloc", "realloc", "free", "posix_memalign", "_Znwm", "_ZdlPvm"}},
		{LIB "libmimalloc.so.2.0",
		 {"malloc", "calloc", "free", "_Znwm", "mi_heap_realloc"}},
		{"/usr/lib/x86_64-linux-musl/libc.so",
		 {"malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc"}},
	};
	size_t looked = 0;
	(void)state;

	for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++) {
		int fd = open(reals[i].path, O_RDONLY | O_CLOEXEC);
		struct elf_file *file;
		struct plan plan;

		if (fd < 0) {
			print_message("no %s on this machine\n", reals[i].path);
			continue;
		}
		assert_int_equal(elf_file_open(&file, fd, reals[i].path, "/nonexistent"), 0);
		assert_int_equal(plan_native(file, NULL, &plan), 0);
		for (size_t s = 0; s < 12 && reals[i].symbols[s]; s++) {
			const struct plan_site *site = site_for(&plan, file, reals[i].symbols[s]);

			if (!site || !site->emulated)
				fail_msg("%s: %s: %s", reals[i].path, reals[i].symbols[s],
					 site ? site->why : "no site");
		}
		looked++;
		plan_free(&plan);
		elf_file_close(file);
	}
	if (!looked)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families), cmocka_unit_test(test_names),
		cmocka_unit_test(test_jumps),    cmocka_unit_test(test_throws),
		cmocka_unit_test(test_cut),      cmocka_unit_test(test_corrupt),
		cmocka_unit_test(test_real),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
