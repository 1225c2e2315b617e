/* SPDX-License-Identifier: Apache-2.0 */
/* Probe plans for the provider otel_memory, of libraries made for the test; hostile notes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native_plans.h"
#include "object/elf/elf_usdt.h"
#include "probe/malloc/plan_provider.h"

#define NOTE(label, provider, name, semaphore, arguments)                                          \
	".section .note.stapsdt,\"\",@note\n.balign 4\n"                                           \
	".4byte 8, 2f-1f, 3\n.asciz \"stapsdt\"\n"                                                 \
	"1: .8byte " label ", 0, " semaphore "\n"                                                  \
	".asciz \"" provider "\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n"                 \
	"2: .balign 4\n.text\n"
#define ALLOC(label, semaphore, arguments) NOTE(label, "otel_memory", "alloc", semaphore, arguments)
#define FREE(label)                        NOTE(label, "otel_memory", "free", "listeners", "8@%rdi")

#define DATA ".data\n.globl listeners\nlisteners: .8byte 0\n.text\n"
#define CODE                                                                                       \
	FUNCTION("take", "push %rbp\nat_alloc: nop\npop %rbp\nret")                                \
	FUNCTION("drop", "at_free: nop\nret")
#define SOUND ALLOC("at_alloc", "listeners", "8@%rdi 8@%rsi 8@%rdx") FREE("at_free")

static const struct plan_site *site_find(const struct plan *plan, enum abi_op op)
{
	for (size_t i = 0; i < plan->count; i++)
		if (plan->sites[i].op == op)
			return &plan->sites[i];
	fail_msg("no such site");
	return NULL;
}

static void test_sites(void **state)
{
	struct elf_file *file =
		library(DATA CODE SOUND FUNCTION("calloc", "nop\nret")
				NOTE("at_free", "other", "alloc", "0", "x")
					NOTE("at_free", "otel_memory", "mmap", "0", "8@%rdi"));
	const struct plan_site *site;
	struct elf_symbol take;
	struct plan plan;
	uint64_t offset;
	(void)state;

	assert_int_equal(plan_native_layer(file, NULL, &plan), 0);
	assert_true(plan.self_sampled);
	assert_int_equal(plan.count, 2);
	assert_int_equal(elf_file_symbol(file, "take", &take), 0);
	site = site_find(&plan, ABI_OP_SAMPLED_ALLOC);
	assert_int_equal(site->vaddr, take.vaddr + 1);
	assert_int_equal(site->cookie, ABI_OP_SAMPLED_ALLOC | EVENT_API_NATIVE << 8);
	assert_int_equal(site->usdt.before, 1);
	assert_int_equal(site->usdt.behind, take.size - 1);
	assert_false(site->with_return);
	assert_int_equal(elf_file_symbol(file, "listeners", &take), 0);
	assert_int_equal(elf_file_offset(file, take.vaddr, &offset), 0);
	assert_int_equal(site->semaphore, offset);
	assert_int_equal(site_find(&plan, ABI_OP_SAMPLED_FREE)->semaphore, offset);
	expect_missing(&plan, "otel_memory:mmap", "not understood");
	assert_int_equal(plan.missing_count, 1);
	plan_free(&plan);
	elf_file_close(file);
}

/* A library that replaces malloc is as a whole the producer's code. */
static void test_allocator(void **state)
{
	struct elf_file *file = library(DATA FUNCTION("malloc", "nop\nnop\nret") CODE SOUND);
	const struct plan_site *site;
	uint64_t text, bytes;
	struct plan plan;
	(void)state;

	assert_int_equal(plan_native_layer(file, NULL, &plan), 0);
	assert_int_equal(plan.count, 2);
	assert_int_equal(elf_file_section(file, ".text", &text, &bytes), 0);
	site = site_find(&plan, ABI_OP_SAMPLED_ALLOC);
	assert_int_equal(site->vaddr - site->usdt.before, text);
	assert_int_equal(site->vaddr + site->usdt.behind, text + bytes);
	plan_free(&plan);
	elf_file_close(file);
}

/* Not all of it can be probed: then nothing is, malloc is planned, and the plan says why. */
static void test_refused(void **state)
{
	static const struct {
		const char *notes, *symbol, *why;
	} cases[] = {
		{ALLOC("at_alloc", "listeners", "8@%rdi 8@%rsi 8@%rdx"), "otel_memory:alloc",
		 "no probe free"},
		{ALLOC("at_alloc", "listeners", "8@%rdi 8@%rsi") FREE("at_free"),
		 "otel_memory:alloc", "2 arguments instead of 3"},
		{ALLOC("at_alloc", "listeners", "8@%rdi 8@%xmm0 8@$1") FREE("at_free"),
		 "otel_memory:alloc", "argument 2"},
		{SOUND ALLOC("take", "listeners", "8@%rdi 8@%rsi 8@%rdx"), "otel_memory:alloc",
		 "not on a nop"},
		{SOUND ALLOC("at_alloc", "0x7000000", "8@%rdi 8@%rsi 8@%rdx"), "otel_memory:alloc",
		 "semaphore"},
		{SOUND ALLOC("at_alloc", "listeners + 1", "8@%rdi 8@%rsi 8@%rdx"),
		 "otel_memory:alloc", "semaphore"},
		{SOUND ALLOC("0x7000000", "listeners", "8@%rdi 8@%rsi 8@%rdx"), "otel_memory:alloc",
		 "not on a nop"},
		{NOTE("at_alloc", "otel_memory", "alloc_v2", "0", "8@%rdi"), "otel_memory:alloc_v2",
		 "not understood"},
		{SOUND ".section .note.stapsdt\n.4byte 8, 100000, 3\n.asciz \"stapsdt\"\n.text\n",
		 "otel_memory", "exceeds the section"},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct elf_file *file =
			assembly_open("", ".text\n%s%s", DATA CODE FUNCTION("malloc", "nop\nret"),
				      cases[i].notes);
		struct plan plan;

		assert_int_equal(plan_native_layer(file, NULL, &plan), 0);
		assert_false(plan.self_sampled);
		assert_int_equal(plan.count, 1);
		expect_site(&plan, "malloc", ABI_OP_MALLOC, ABI_REG_DI, NONE, NONE, 1);
		expect_missing(&plan, cases[i].symbol, cases[i].why);
		plan_free(&plan);
		elf_file_close(file);
	}
}

static void test_none(void **state)
{
	struct elf_file *file = library(CODE NOTE("at_free", "other", "alloc", "0", ""));
	struct plan plan;
	(void)state;

	assert_int_equal(plan_native_layer(file, NULL, &plan), -ENOENT);
	elf_file_close(file);
	/* What is not heard is said although nothing else is in the file. */
	file = library(CODE NOTE("at_free", "otel_memory", "free_v2", "0", ""));
	assert_int_equal(plan_native_layer(file, NULL, &plan), 0);
	assert_int_equal(plan.count, 0);
	expect_missing(&plan, "otel_memory:free_v2", "not understood");
	plan_free(&plan);
	elf_file_close(file);
}

/* More places than are probed: none is. */
static void test_many(void **state)
{
	struct elf_file *file = assembly_open(
		"", ".text\n.rept %u\n%s.endr\n%s", PLAN_PROVIDER_SITES,
		ALLOC("at_alloc", "listeners", "8@%rdi 8@%rsi 8@%rdx"), DATA CODE SOUND);
	struct plan plan;
	(void)state;

	assert_int_equal(plan_native_layer(file, NULL, &plan), 0);
	assert_false(plan.self_sampled);
	assert_int_equal(plan.count, 0);
	expect_missing(&plan, "otel_memory:alloc", "too many");
	plan_free(&plan);
	elf_file_close(file);
}

static int probe_count(void *context, const struct elf_usdt *probe)
{
	*(size_t *)context +=
		strlen(probe->provider) + strlen(probe->name) + strlen(probe->arguments) > 0;
	return 0;
}

/* Every prefix of two notes, copied so that a byte read beyond it is found. */
static void test_cut(void **state)
{
	static const uint8_t note[] = "\x08\0\0\0\x1f\0\0\0\x03\0\0\0stapsdt\0"
				      "01234567"
				      "01234567"
				      "01234567"
				      "p\0n\0a8";
	uint8_t notes[2 * 52] = {0};
	(void)state;

	/* The description has 31 bytes, padded to 32. */
	memcpy(notes, note, sizeof(note));
	memcpy(notes + 52, note, sizeof(note));
	for (size_t bytes = 0; bytes <= sizeof(notes); bytes++) {
		uint8_t *copy = malloc(bytes + !bytes);
		size_t count = 0;
		int err;

		assert_non_null(copy);
		memcpy(copy, notes, bytes);
		err = elf_usdt_parse(copy, bytes, probe_count, &count);
		assert_int_equal(count, (bytes >= 51) + (bytes >= 103));
		assert_true(err == 0 || err == -ENOEXEC);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sites),   cmocka_unit_test(test_allocator),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_none),
		cmocka_unit_test(test_many),    cmocka_unit_test(test_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
