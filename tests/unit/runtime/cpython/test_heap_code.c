/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds pymalloc's variables in machine code: the code of real interpreters is compared with their
 * symbols, then code that resembles the function, or does not.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "arm64_code.h"
#include "object/insn/machine.h"
#include "pythons.h"
#include "runtime/cpython/heap_code.h"
#include "runtime/cpython/runtime.h"

#define CODE_BYTES 1024u

/* The code yields what the symbols yield; a part of the code yields the same or nothing. */
static void check_decode(unsigned int minor)
{
	char *program = "import os, signal\nos.write(1, b'\\n')\nsignal.pause()";
	struct elf_symbol function, arenas, maxarenas, raw_blocks;
	struct heap_code whole = {0}, part;
	uint8_t code[CODE_BYTES];
	struct python_child child = {0};
	struct python_runtime runtime;
	char path[PATH_MAX];
	int named;

	if (!python_path(minor, path))
		skip();
	assert_int_equal(python_start(&child, (char *[]){path, "-c", program, NULL}, NULL), 0);
	assert_int_equal(getc(child.out), '\n');
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
	assert_int_equal(elf_file_symbol(runtime.file, "_Py_GetAllocatedBlocks", &function), 0);
	assert_true(function.size <= sizeof(code));
	assert_int_equal(elf_file_read(runtime.file, function.vaddr, code, function.size),
			 function.size);
	assert_int_equal(
		heap_code_decode(&machine_x86, code, function.size, function.vaddr, &whole), 0);
	named = elf_file_symbol(runtime.file, "arenas", &arenas) == 0 &&
		elf_file_symbol(runtime.file, "maxarenas", &maxarenas) == 0 &&
		elf_file_symbol(runtime.file, "raw_allocated_blocks", &raw_blocks) == 0;
	if (named) {
		assert_int_equal(whole.arenas, arenas.vaddr);
		assert_int_equal(whole.maxarenas, maxarenas.vaddr);
		assert_int_equal(whole.raw_blocks, raw_blocks.vaddr);
	}
	for (size_t bytes = 0; bytes < function.size; bytes++) {
		int err = heap_code_decode(&machine_x86, code, bytes, function.vaddr, &part);

		if (err == -ENOTSUP)
			continue;
		assert_int_equal(err, 0);
		assert_int_equal(part.arenas, whole.arenas);
		assert_int_equal(part.maxarenas, whole.maxarenas);
		assert_int_equal(part.raw_blocks, whole.raw_blocks);
	}
	python_runtime_close(&runtime);
	python_stop(&child);
	if (!named) {
		printf("%s has no symbols to compare with\n", path);
		skip();
	}
}

#define DECODE_TEST(minor)                                                                         \
	static void test_decode_3##minor(void **state)                                             \
	{                                                                                          \
		(void)state;                                                                       \
		check_decode(minor);                                                               \
	}

DECODE_TEST(9)
DECODE_TEST(10)
DECODE_TEST(11)

/* The function with absolute addresses, as in an executable that is not position independent. */
static const uint8_t absolute_code[] = {
	0x48, 0x8b, 0x04, 0x25, 0x18, 0x40, 0x40, 0x00, /* 00 mov 0x404018,%rax */
	0x8b, 0x0c, 0x25, 0x28, 0x40, 0x40, 0x00,       /* 08 mov 0x404028,%ecx */
	0x48, 0x8b, 0x3c, 0x25, 0x20, 0x40, 0x40, 0x00, /* 0f mov 0x404020,%rdi */
	0x85, 0xc9,                                     /* 17 test %ecx,%ecx */
	0x74, 0x26,                                     /* 19 je 41 */
	0x48, 0x8b, 0x17,                               /* 1b mov (%rdi),%rdx */
	0x48, 0x85, 0xd2,                               /* 1e test %rdx,%rdx */
	0x74, 0x16,                                     /* 21 je 39 */
	0x48, 0x8b, 0x77, 0x08,                         /* 23 mov 8(%rdi),%rsi */
	0x44, 0x8b, 0x02,                               /* 27 mov (%rdx),%r8d */
	0x4c, 0x01, 0xc0,                               /* 2a add %r8,%rax */
	0x48, 0x81, 0xc2, 0x00, 0x40, 0x00, 0x00,       /* 2d add $0x4000,%rdx */
	0x48, 0x39, 0xf2,                               /* 34 cmp %rsi,%rdx */
	0x72, 0xee,                                     /* 37 jb 27 */
	0x48, 0x83, 0xc7, 0x30,                         /* 39 add $0x30,%rdi */
	0xff, 0xc9,                                     /* 3d dec %ecx */
	0xeb, 0xd6,                                     /* 3f jmp 17 */
	0xc3,                                           /* 41 ret */
};

static void test_decode_absolute(void **state)
{
	struct heap_code head;

	(void)state;
	assert_int_equal(
		heap_code_decode(&machine_x86, absolute_code, sizeof(absolute_code), 0x1000, &head),
		0);
	assert_int_equal(head.arenas, 0x404020);
	assert_int_equal(head.maxarenas, 0x404028);
	assert_int_equal(head.raw_blocks, 0x404018);
}

/* The same function with a few bytes changed is another function. */
static void test_decode_others(void **state)
{
	static const struct {
		uint8_t at, count, bytes[5];
	} changes[] = {
		{0x0b, 1, {0x29}},                         /* a variable at an odd address */
		{0x13, 1, {0x18}},                         /* arenas is the counter */
		{0x13, 1, {0x28}},                         /* one address in two widths */
		{0x01, 1, {0x89}},                         /* it writes a variable */
		{0x1b, 3, {0x48, 0x8b, 0x10}},             /* the counter is dereferenced */
		{0x1b, 3, {0x48, 0x89, 0x17}},             /* it writes an arena */
		{0x27, 3, {0x4c, 0x8b, 0x02}},             /* 64 bits of a pool are added */
		{0x27, 3, {0x44, 0x8b, 0x07}},             /* 32 bits of an arena object are */
		{0x2a, 3, {0x4c, 0x01, 0xc7}},             /* they are added to arenas */
		{0x2a, 3, {0x4c, 0x29, 0xc0}},             /* they are subtracted */
		{0x2d, 5, {0xe8, 0x00, 0x00, 0x00, 0x00}}, /* it calls another function */
		{0x19, 2, {0xeb, 0x26}},                   /* it never reaches the loop */
	};
	uint8_t code[sizeof(absolute_code)];
	struct heap_code head;

	(void)state;
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		memcpy(code, absolute_code, sizeof(code));
		memcpy(code + changes[i].at, changes[i].bytes, changes[i].count);
		if (heap_code_decode(&machine_x86, code, sizeof(code), 0x1000, &head) != -ENOTSUP)
			fail_msg("change %zu is taken for the function", i);
	}
}

/* arm64: a base and an offset make a variable's address; %s are two of its instructions. */
static const char arm64_text[] = "adr x1, .+0x5000\n"
				 "adr x2, .+0x5ffc\n"
				 "mov w5, #0\n"
				 "mov x7, #0x3fff\n"
				 "ldr x0, [x1, #24]\n"
				 "ldr w6, [x2, #40]\n"
				 "ldr x4, [x2, #32]\n"
				 "1: cmp w6, w5\n"
				 "b.eq 4f\n"
				 "ldr x1, [x4]\n"
				 "cbz x1, 3f\n"
				 "add x1, x1, x7\n"
				 "ldr x3, [x4, #8]\n"
				 "and x1, x1, #0xffffffffffffc000\n"
				 "2: cmp x1, x3\n"
				 "b.hs 3f\n"
				 "%s\n"
				 "add x1, x1, #0x4000\n"
				 "%s\n"
				 "b 2b\n"
				 "3: add w5, w5, #1\n"
				 "add x4, x4, #0x30\n"
				 "b 1b\n"
				 "4: ret\n";

static int arm64_decode_text(const char *first, const char *second, struct heap_code *head)
{
	char text[sizeof(arm64_text) + 100];
	struct arm64_code code;

	snprintf(text, sizeof(text), arm64_text, first, second);
	code = arm64_assemble(text);
	return heap_code_decode(&machine_arm64, code.bytes, code.count, 0x10000, head);
}

static void test_decode_arm64(void **state)
{
	static const char *const others[][2] = {
		{"ldr x8, [x1]", "add x0, x0, x8"},      /* 64 bits of a pool */
		{"ldr w8, [x4]", "add x0, x0, x8"},      /* 32 bits of an arena object */
		{"ldr w8, [x1]", "add x4, x4, x8"},      /* added to arenas */
		{"ldr w8, [x1]", "str x8, [x2]"},        /* it writes */
		{"ldr w8, [x1]", "bl .+0x100"},          /* it calls */
		{"ldr w8, [x2, #80]", "add x0, x0, x8"}, /* a fourth variable */
	};
	struct heap_code head;

	(void)state;
	assert_int_equal(arm64_decode_text("ldr w8, [x1]", "add x0, x0, x8", &head), 0);
	assert_int_equal(head.raw_blocks, 0x15018);
	assert_int_equal(head.arenas, 0x16020);
	assert_int_equal(head.maxarenas, 0x16028);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (arm64_decode_text(others[i][0], others[i][1], &head) != -ENOTSUP)
			fail_msg("\"%s\" is taken for the function", others[i][1]);
}

static void test_decode_garbage(void **state)
{
	static const uint8_t total[] = {0x48, 0x8b, 0x05, 0x69, 0x7b, 0x27, 0x00, 0xc3}; /* 3.8's */
	uint8_t code[2 * CODE_BYTES];
	struct heap_code head;
	uint64_t random = 88172645463325252u;

	(void)state;
	assert_int_equal(heap_code_decode(&machine_x86, total, sizeof(total), 0, &head), -ENOTSUP);
	assert_int_equal(heap_code_decode(&machine_x86, total, 0, 0, &head), -ENOTSUP);
	memset(code, 0x90, sizeof(code));
	assert_int_equal(heap_code_decode(&machine_x86, code, CODE_BYTES, 0, &head), -ENOTSUP);
	/* too long */
	assert_int_equal(heap_code_decode(&machine_x86, code, sizeof(code), 0, &head), -ENOTSUP);
	memset(code, 0xff, sizeof(code));
	assert_int_equal(heap_code_decode(&machine_x86, code, CODE_BYTES, UINT64_MAX - 3, &head),
			 -ENOTSUP);
	for (int i = 0; i < 2000; i++) {
		for (size_t byte = 0; byte < CODE_BYTES; byte++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			code[byte] = (uint8_t)random;
		}
		assert_int_equal(heap_code_decode(&machine_x86, code, CODE_BYTES, random, &head),
				 -ENOTSUP);
	}
	/* Nearly right code: whatever the result, decoding stays within bounds. */
	for (size_t bit = 0; bit < 8 * sizeof(absolute_code); bit++) {
		memcpy(code, absolute_code, sizeof(absolute_code));
		code[bit / 8] ^= (uint8_t)(1u << bit % 8);
		int err =
			heap_code_decode(&machine_x86, code, sizeof(absolute_code), 0x1000, &head);

		assert_true(err == 0 || err == -ENOTSUP);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode_39),      cmocka_unit_test(test_decode_310),
		cmocka_unit_test(test_decode_311),     cmocka_unit_test(test_decode_absolute),
		cmocka_unit_test(test_decode_others),  cmocka_unit_test(test_decode_arm64),
		cmocka_unit_test(test_decode_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
