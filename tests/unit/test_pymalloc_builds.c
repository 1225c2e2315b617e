/* SPDX-License-Identifier: Apache-2.0 */
/* The analysis of inlined allocators on small libraries with the shapes that other compilers and linkers make. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/events.h"
#include "abi/target.h"
#include "assembly.h"
#include "plan/plan_inline.h"

/* A function with its unwind table entry, as .eh_frame_hdr names its start. */
#define MACROS                                                                                               \
	".macro function name\n"                                                                             \
	".p2align 4\n"                                                                                       \
	".type \\name, @function\n"                                                                          \
	"\\name: .cfi_startproc\n"                                                                           \
	".endm\n"                                                                                            \
	".macro end name\n"                                                                                  \
	".cfi_endproc\n"                                                                                     \
	".size \\name, .-\\name\n"                                                                           \
	".endm\n"                                                                                            \
	".section .note.GNU-stack\n"

struct library {
	struct elf_file *file;
	struct inline_sites sites;
};

/* Assembles and links the text, and looks for sites in it. */
static void library_open(struct library *library, const char *text)
{
	library->file = assembly_open("", "%s%s", MACROS, text);
	assert_int_equal(plan_inline(library->file, &library->sites), 0);
}

static void library_close(struct library *library)
{
	inline_sites_free(&library->sites);
	elf_file_close(library->file);
}

static uint64_t label(const struct library *library, const char *name)
{
	struct elf_symbol symbol;

	if (elf_file_symbol(library->file, name, &symbol))
		fail_msg("no label %s", name);
	return symbol.vaddr;
}

/* The site at that label; NULL. */
static const struct plan_site *site_at(const struct library *library, const char *name)
{
	uint64_t vaddr = label(library, name);

	for (size_t i = 0; i < library->sites.count; i++)
		if (library->sites.sites[i].vaddr == vaddr)
			return &library->sites.sites[i];
	return NULL;
}

static void assert_object(const struct library *library, const char *name, uint32_t reg)
{
	const struct plan_site *site = site_at(library, name);

	if (!site)
		fail_msg("no site at %s", name);
	assert_true(site->cookie ==
		    ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, reg, ABI_REG_COUNT, ABI_REG_COUNT));
}

/* What is told of a new object, and the structure with the flag that asks for it, 4 bytes behind its beginning. */
#define TOLD                                                                                                 \
	"function slow\n"                                                                                    \
	"	ret\n"                                                                                             \
	"end slow\n"                                                                                         \
	".local config\n"                                                                                    \
	".comm config, 16, 8\n"

/*
 * A linker makes a lea of a load from a slot that leads to the file's own variable, and the function that is exported may be
 * no more than a jump to what its copies share.
 */
static void test_address_taken(void **state)
{
	(void)state;
	static const char text[] = ".text\n"
				   ".globl _Py_NewReference\n"
				   "function _Py_NewReference\n"
				   "	endbr64\n"
				   "	jmp body\n"
				   "end _Py_NewReference\n"
				   "function body\n"
				   "	lea config(%rip), %rax\n"
				   "	cmpl $0, 4(%rax)\n"
				   "at_body: jne 1f\n"
				   "	movq $1, (%rdi)\n"
				   "	ret\n"
				   "1:	sub $24, %rsp\n"
				   "	mov %rdi, 8(%rsp)\n"
				   "	call slow\n"
				   "	ret\n"
				   "end body\n"
				   "function copies\n"
				   "	lea config(%rip), %r12\n"
				   "	mov 8(%r12), %eax\n"
				   "	mov 4(%r12), %ecx\n"
				   "	test %ecx, %ecx\n"
				   "at_hoisted: jne 2f\n"
				   "1:	cmpl $0, config+4(%rip)\n"
				   "at_direct: je 1f\n"
				   "	jmp copies_cold\n"
				   "1:	lea config(%rip), %rax\n"
				   "	cmpl $0, 8(%rax)\n"
				   "at_other_field: jne 2f\n"
				   "	lea config(%rip), %rax\n"
				   "	mov %rdx, %rax\n"
				   "	cmpl $0, 4(%rax)\n"
				   "at_other_structure: jne 2f\n"
				   "	call body\n"
				   "	lea body(%rip), %rax\n" /* so not all of its calls are known */
				   "	ret\n"
				   "2:	mov %rbx, %rdi\n"
				   "	call slow\n"
				   "	jmp 1b\n"
				   "end copies\n"
				   /* A part that was split off begins like a function. */
				   "function copies_cold\n"
				   "	mov %r13, %rdi\n"
				   "	call slow\n"
				   "	ret\n"
				   "end copies_cold\n" TOLD;
	struct library library;

	library_open(&library, text);
	assert_int_equal(library.sites.objects_unknown, 0);
	assert_int_equal(library.sites.object_sites, 1);
	assert_object(&library, "at_body", ABI_REG_DI);
	assert_object(&library, "at_hoisted", ABI_REG_BX);
	assert_object(&library, "at_direct", ABI_REG_R13);
	assert_int_equal(library.sites.found[INLINE_OBJECT], 3);
	library_close(&library);
}

/* Where it is not known how the flag is read, that is said. */
static void test_not_recognised(void **state)
{
	(void)state;
	static const char text[] = ".text\n"
				   ".globl _Py_NewReference\n"
				   "function _Py_NewReference\n"
				   "	mov (%rsi), %rax\n"
				   "	test %rax, %rax\n"
				   "	jne 1f\n"
				   "	ret\n"
				   "1:	call slow\n"
				   "	ret\n"
				   "end _Py_NewReference\n" TOLD;
	struct library library;

	library_open(&library, text);
	assert_int_equal(library.sites.objects_unknown, 1);
	assert_int_equal(library.sites.found[INLINE_OBJECT], 0);
	library_close(&library);
}

#define COPY(name, cold)                                                                                     \
	"	cmpl $0, config+4(%rip)\n" name ": jne " cold "\n"                                           \
	"	ret\n"
#define COLD(name)                                                                                           \
	name ":	mov %rbx, %rdi\n"                                                                            \
	     "	call slow\n"                                                                                  \
	     "	ret\n"

/*
 * What BOLT makes: functions that were moved, parts of them elsewhere, and the section that was, in which some are still
 * used, by a call, by an address, and through one another; the rest are the originals of what was moved.
 */
static void test_rewritten(void **state)
{
	(void)state;
	static const char text[] = ".text\n" TOLD "function moved\n" COPY(
		"at_moved",
		"moved_cold") "	call called\n"
			      "	lea taken(%rip), %rax\n"
			      "	movabs $0x1122e8000000, %rax\n" /* the byte of a call, of none */
			      "end moved\n"
			      ".section .text.cold, \"ax\", @progbits\n"
			      "function moved_cold\n" COLD(
				      "in_cold") "end moved_cold\n"
						 ".section .bolt.org.text, \"ax\", @progbits\n"
						 ".globl _Py_NewReference\n"
						 "function _Py_NewReference\n"
						 "	cmpl $0, config+4(%rip)\n"
						 "at_function: jne 1f\n"
						 "	ret\n"
						 "1:	call slow\n"
						 "	ret\n"
						 "end _Py_NewReference\n"
						 "function called\n" COPY(
							 "at_called",
							 "called_part") "end called\n"
									"function part\n"
									"	.skip 200, "
									"0x90\n" /* the jump to it is a long one */
		COLD("called_part") "end part\n"
				    "function taken\n" COPY("at_taken", "1f") COLD(
					    "1") "end taken\n"
						 "function listed\n" COPY("at_listed", "1f") COLD(
							 "1") "end listed\n"
							      "function original\n" COPY("at_original", "1f")
								      COLD("1") "	jmp only_original\n"
										"end original\n"
										"function "
										"only_original\n" COPY(
											"at_only_original",
											"1f")
											COLD("1") "end "
												  "only_"
												  "original\n"
												  ".data\n"
												  ".quad "
												  "listed\n";
	static const char *const alive[] = {"at_moved", "at_called", "at_taken", "at_listed"};
	struct library library;

	library_open(&library, text);
	for (size_t i = 0; i < sizeof(alive) / sizeof(alive[0]); i++)
		assert_object(&library, alive[i], ABI_REG_BX);
	assert_null(site_at(&library, "at_original"));
	assert_null(site_at(&library, "at_only_original"));
	library_close(&library);
}

/* A pool in rdx gives a block, or there is none; a block goes back to its pool. */
#define TAKE(name)                                                                                           \
	"	mov 0x10(%rdx), %rdi\n"                                                                            \
	"	cmp %rdi, %rdx\n" name ": je refill\n"                                                       \
	"	mov 8(%rdx), %rax\n"                                                                               \
	"	incl (%rdx)\n"                                                                                     \
	"	mov (%rax), %rcx\n"                                                                                \
	"	mov %rcx, 8(%rdx)\n"                                                                               \
	"	ret\n"
#define GIVE                                                                                                 \
	"function give\n"                                                                                    \
	"	mov 8(%rax), %rcx\n"                                                                               \
	"	mov %rcx, (%rsi)\n"                                                                                \
	"	mov %rsi, 8(%rax)\n"                                                                               \
	"	test %rcx, %rcx\n"                                                                                 \
	"	je 1f\n"                                                                                           \
	"1:	ret\n"                                                                                           \
	"end give\n"                                                                                         \
	"function refill\n"                                                                                  \
	"	ret\n"                                                                                             \
	"end refill\n"                                                                                       \
	".local pools\n"                                                                                     \
	".comm pools, 1024, 8\n"

static void assert_size(const struct library *library, const char *name, uint32_t reg, int64_t addend)
{
	const struct plan_site *site = site_at(library, name);

	if (!site)
		fail_msg("no site at %s", name);
	if (site->cookie != (ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_DX, reg, ABI_REG_COUNT) |
			     ABI_COOKIE_ADDEND(addend)))
		fail_msg("%s: %s", name, site->why);
}

/* How compilers ask whether a size is one of 1 to 512; and what is still known where two ways meet behind that. */
static void test_sizes(void **state)
{
	(void)state;
	static const char text[] =
		".text\n" GIVE "function size_itself\n"
		"	test %rbx, %rbx\n"
		"	je 1f\n"
		"	cmp $0x200, %rbx\n"
		"	ja 1f\n"
		"	mov pools(%rip), %rdx\n" TAKE(
			"at_itself") "1:	ret\n"
				     "end size_itself\n"
				     "function size_wrapped\n"
				     "	lea -0x201(%rsi), %rax\n"
				     "	cmp $-0x200, %rax\n"
				     "	jb 1f\n"
				     "	mov pools(%rip), %rdx\n" TAKE(
					     "at_wrapped") "1:	ret\n"
							   "end size_wrapped\n"
							   "function size_other_way\n"
							   "	lea -1(%rsi), %rax\n"
							   "	cmp $0x200, %rax\n"
							   "	jb 1f\n"
							   "	ret\n"
							   "1:	mov pools(%rip), %rdx\n" TAKE(
								   "at_other_way") "end size_other_way\n"
										   /* Not of 512 values: no size. */
										   "function no_size\n"
										   "	cmp $0x1fe, %rbx\n"
										   "	ja 1f\n"
										   "	mov pools(%rip), "
										   "%rdx\n" TAKE(
											   "at_no_size") "1:	ret\n"
													 "end"
													 " no"
													 "_si"
													 "ze"
													 "\n"
													 /* Both ways have compared. */
													 "fun"
													 "cti"
													 "on "
													 "two"
													 "_wa"
													 "ys"
													 "\n"
													 "	cmp $0x200, %rbx\n"
													 "	ja 2f\n"
													 "1:	lea -1(%rbx), %esi\n"
													 "	shr $4, %esi\n"
													 "	lea (%rsi,%rsi), %eax\n"
													 "	mov (%r8,%rax,8), %rdx\n" TAKE(
														 "at_two_ways") "2:	ret\n"
																"	cmp $0x200, %rbx\n"
																"	jbe 1b\n"
																"	ret\n"
																"end two_ways\n"
																"function two_ways_masked\n"
																"	cmp $0x200, %rbx\n"
																"	ja 2f\n"
																"1:	lea -1(%r9), %eax\n"
																"	and $-16, %eax\n"
																"	mov (%r8,%rax), %rdx\n" TAKE(
																	"at_masked") "2:	ret\n"
																		     "	jmp 1b\n"
																		     "end two_ways_masked\n";
	struct library library;

	library_open(&library, text);
	assert_size(&library, "at_itself", ABI_REG_BX, 0);
	assert_size(&library, "at_wrapped", ABI_REG_AX, 0x201);
	assert_size(&library, "at_other_way", ABI_REG_AX, 1);
	assert_size(&library, "at_no_size", ABI_REG_COUNT, 0);
	assert_size(&library, "at_two_ways", ABI_REG_BX, 0);
	assert_size(&library, "at_masked", ABI_REG_R9, 0);
	assert_int_equal(library.sites.exact, 5);
	library_close(&library);
}

/* A large block is asked for through a slot, in the function or in a part of it; or by a function that jumps through one. */
static void test_large(void **state)
{
	(void)state;
	static const char text[] = ".text\n" GIVE "function allocate\n"
				   "	lea -1(%rsi), %rax\n"
				   "	cmp $0x1ff, %rax\n"
				   "	ja 1f\n"
				   "	mov pools(%rip), %rdx\n" TAKE(
					   "at_pool") "1:	call *slot(%rip)\n"
						      "in_function:	test %rax, %rax\n"
						      "	je 2f\n"
						      "	incq 0x440(%r12)\n"
						      "2:	ret\n"
						      "	call *slot(%rip)\n" /* this one is not counted */
						      "	ret\n"
						      "	jmp allocate_cold\n"
						      "	call raw\n"
						      "behind_jump:	test %rax, %rax\n"
						      "	jne 3f\n"
						      "	ret\n"
						      "3:	addq $1, 0x440(%rbp)\n"
						      "	ret\n"
						      "end allocate\n"
						      "function allocate_cold\n"
						      "	mov %rbx, %rsi\n"
						      "	call *slot(%rip)\n"
						      "in_part:	test %rax, %rax\n"
						      "	je 2b\n"
						      "	incq 0x440(%r12)\n"
						      "	ret\n"
						      "end allocate_cold\n"
						      "function raw\n"
						      "	jmp *slot(%rip)\n"
						      "end raw\n"
						      ".local slot\n"
						      ".comm slot, 8, 8\n";
	static const char *const names[] = {"in_function", "in_part", "behind_jump"};
	struct library library;

	library_open(&library, text);
	assert_int_equal(library.sites.large_count, 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(library.sites.large[i] == label(&library, names[i]));
	library_close(&library);
}

/* A copy of the allocator that makes pools itself: the block is the first of a pool that is taken into use there. */
#define MAKE(name, store)                                                                                    \
	"	movl $1, (%r9)\n" store "	cmp %ebp, 0x24(%r9)\n" name ": jne 8f\n"                     \
	"	mov 8(%r9), %rax\n"                                                                                \
	"	mov (%rax), %rdi\n"                                                                                \
	"	mov %rdi, 8(%r9)\n"                                                                                \
	"	ret\n"                                                                                             \
	"8:	mov %ebp, 0x24(%r9)\n"                                                                           \
	"	mov %rdi, 8(%r9)\n"                                                                                \
	"	ret\n"

static void test_first_block(void **state)
{
	(void)state;
	static const char text[] = ".text\n" GIVE "function allocate\n"
				   "	lea -1(%rsi), %rax\n"
				   "	cmp $0x1ff, %rax\n"
				   "	ja 2f\n"
				   "	mov pools(%rip), %rdx\n"
				   "	mov 0x10(%rdx), %rdi\n"
				   "	cmp %rdi, %rdx\n"
				   "at_pool: jne 1f\n"
				   "	test %r8, %r8\n"
				   "	je 2f\n" MAKE("at_first", "") "1:	mov 8(%rdx), %rax\n"
								      "	incl (%rdx)\n"
								      "	mov (%rax), %rcx\n"
								      "	mov %rcx, 8(%rdx)\n"
								      "2:	ret\n"
								      "end allocate\n";
	struct library library;
	const struct plan_site *site;

	library_open(&library, text);
	assert_int_equal(library.sites.found[INLINE_FIRST], 1);
	assert_int_equal(library.sites.given_up_count, 0);
	assert_true((site_at(&library, "at_pool")->cookie >> 32 & 0xff) == ABI_REG_SP);
	site = site_at(&library, "at_first");
	assert_non_null(site);
	assert_true(site->cookie ==
		    ABI_COOKIE(ABI_OP_FIRST_BLOCK, EVENT_API_OBJ, ABI_REG_R9, ABI_REG_COUNT, ABI_REG_COUNT));
	library_close(&library);
}

/* Where the new class is stored already, it is not known whether the pool begins anew. */
static void test_first_block_unknown(void **state)
{
	(void)state;
	static const char text[] =
		".text\n" GIVE "function allocate\n"
		"	mov pools(%rip), %rdx\n"
		"	mov 0x10(%rdx), %rdi\n"
		"	cmp %rdi, %rdx\n"
		"at_pool: jne 1f\n"
		"	test %r8, %r8\n"
		"	je 2f\n" MAKE("at_first", "	mov %ebp, 0x24(%r9)\n") "1:	mov 8(%rdx), %rax\n"
										"	incl (%rdx)\n"
										"	mov (%rax), %rcx\n"
										"	mov %rcx, 8(%rdx)\n"
										"2:	ret\n"
										"end allocate\n";
	struct library library;

	library_open(&library, text);
	assert_int_equal(library.sites.found[INLINE_FIRST], 0);
	assert_int_equal(library.sites.given_up[INLINE_FIRST], 1);
	assert_null(site_at(&library, "at_first"));
	library_close(&library);
}

static void assert_resize(const struct library *library, const char *name, uint32_t block, uint32_t size,
			  int64_t addend)
{
	const struct plan_site *site = site_at(library, name);

	if (!site)
		fail_msg("no site at %s", name);
	assert_true(site->cookie == (ABI_COOKIE(ABI_OP_RESIZE, EVENT_API_OBJ, block, size, ABI_REG_COUNT) |
				     ABI_COOKIE_ADDEND(addend)));
}

/* What the size of a realloc becomes if the block moves stands behind a question, before the branch, or on another way. */
static void test_resizes(void **state)
{
	(void)state;
	static const char text[] =
		".text\n" GIVE "function allocate\n"
		"	mov pools(%rip), %rdx\n" TAKE("at_pool") "end allocate\n"
								 "function question\n"
								 "	and $-16384, %rdi\n"
								 "	shl $4, %ebp\n"
								 "	cmp %rsi, %rbp\n"
								 "	jb 1f\n"
								 "	lea (,%rsi,4), %rax\n"
								 "	lea (%rbp,%rbp,2), %rdx\n"
								 "	cmp %rax, %rdx\n"
								 "at_question: jb 2f\n"
								 "	test %rsi, %rsi\n"
								 "	je 2f\n"
								 "	mov %rsi, %rbp\n"
								 "1:	call refill\n"
								 "	mov %rbx, %rsi\n"
								 "	call refill\n"
								 "2:	ret\n"
								 "end question\n"
								 "function before\n"
								 "	mov %rdi, %r12\n"
								 "	and $-16384, %r12\n"
								 "	shl $4, %r14d\n"
								 "	add $0x10, %r14d\n"
								 "	cmp %rdx, %r14\n"
								 "	jb 1f\n"
								 "	lea (,%rdx,4), %rax\n"
								 "	lea (%r14,%r14,2), %rcx\n"
								 "	mov %rdx, %r14\n"
								 "	cmp %rcx, %rax\n"
								 "at_before: ja 2f\n"
								 "1:	ret\n"
								 "2:	mov %rdi, %rax\n"
								 "	ret\n"
								 "end before\n"
								 "function other_way\n"
								 "	shl $4, %ebp\n"
								 "	cmp %r15, %rbp\n"
								 "	jae 1f\n"
								 "	ret\n"
								 "	.skip 64, 0x90\n"
								 "	ret\n"
								 "1:	mov %r12, %rax\n"
								 "	lea (%rbp,%rbp,2), %rdx\n"
								 "	shl $5, %rax\n"
								 "	cmp %rax, %rdx\n"
								 "at_other_way: jae 3f\n"
								 "2:	ret\n"
								 "3:	mov %r15, %rbp\n"
								 "	call refill\n"
								 "	mov %rbx, %rsi\n"
								 "	call refill\n"
								 "	ret\n"
								 "end other_way\n"
								 /* Not of a size class. */
								 "function another\n"
								 "	lea (%rbp,%rbp,2), %rdx\n"
								 "	cmp %rax, %rdx\n"
								 "at_another: jb 1f\n"
								 "	mov %r15, %rbp\n"
								 "1:	ret\n"
								 "end another\n";
	struct library library;

	library_open(&library, text);
	assert_resize(&library, "at_question", ABI_REG_BX, ABI_REG_SI, 0);
	assert_resize(&library, "at_before", ABI_REG_DI, ABI_REG_DX, 1);
	assert_resize(&library, "at_other_way", ABI_REG_BX, ABI_REG_R15, 0);
	assert_null(site_at(&library, "at_another"));
	assert_int_equal(library.sites.found[INLINE_RESIZE], 3);
	library_close(&library);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address_taken), cmocka_unit_test(test_not_recognised),
		cmocka_unit_test(test_rewritten),     cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_large),         cmocka_unit_test(test_resizes),
		cmocka_unit_test(test_first_block),   cmocka_unit_test(test_first_block_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
