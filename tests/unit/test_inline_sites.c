/* SPDX-License-Identifier: Apache-2.0 */
/* The analysis of inlined allocators: on a small program of known shapes, and on real interpreters. */
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
#include "probe/plan_inline.h"

#define TEXT      0x401000u
#define TEXT_SIZE 0x150u
#define STUB      0x401150u

/*
 * impl:	ret
 * refill:	push %rbx; pop %rbx; ret
 * alloc_const:	push %rbx; mov slot,%rax; mov slot,%rdi; cmp $impl,%rax; jne 2f; mov pools+16,%rdx
 *		mov 0x10(%rdx),%rcx; cmp %rcx,%rdx; je 1f			# 401045
 *		mov 0x8(%rdx),%rax; addl $1,(%rdx); mov (%rax),%rcx; mov %rcx,0x8(%rdx); pop %rbx; ret
 *	1:	mov $1,%edi; call refill; pop %rbx; ret
 *	2:	mov $0x20,%esi; call *%rax; pop %rbx; ret
 * alloc_var:	lea 0x11(%rbx),%rbp; lea -0x1(%rbp),%rax; cmp $0x1ff,%rax; ja 3f
 *		mov %rbp,%rdi; xor %ebp,%ebp; lea -0x1(%rdi),%edi; shr $4,%edi; mov pools(,%rdi,8),%r12
 *		mov 0x10(%r12),%rcx; cmp %rcx,%r12; jne 1f			# 40109b
 *		call refill; ret
 *	1:	xor %r8d,%r8d; jmp 2f
 *	3:	ret
 *	2:	addl $1,(%r12); mov 0x8(%r12),%rax; ret
 * give:	and $-16384,%rax; mov 0x8(%rax),%rcx; mov %rcx,(%rsi); mov %rsi,0x8(%rax); mov (%rax),%edx
 *		test %rcx,%rcx; je 1f						# 4010d6
 *	1:	ret
 * give_lost:	the same, but mov (%rax),%esi; test %rcx,%rcx; jne 1f		# 4010f0
 *	1:	ret
 * large:	push %rbx; call stub_malloc					# 401101
 *		mov %rax,%rbx; test %rax,%rax; je 1f				# 40110c
 *		addq $1,counter
 *	1:	call *got_free; pop %rbx; ret					# 401116
 * tail:	jmp stub_malloc							# 401120
 * decoy:	mov 0x10(%rdx),%rcx; cmp %rcx,%rdx; je 1f; mov 0x8(%rdx),%rax; addq $1,(%rdx)
 *	1:	ret
 * stub_malloc:	endbr64; jmp *got_malloc
 */
static const uint8_t program[] = {
	0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x1f, 0x40, 0x00, 0x53,
	0x5b, 0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x66, 0x90, 0x53, 0x48,
	0x8b, 0x05, 0xd8, 0x1f, 0x00, 0x00, 0x48, 0x8b, 0x3d, 0xd1, 0x1f, 0x00, 0x00, 0x48, 0x3d, 0x00, 0x10,
	0x40, 0x00, 0x75, 0x2c, 0x48, 0x8b, 0x15, 0xda, 0x1f, 0x00, 0x00, 0x48, 0x8b, 0x4a, 0x10, 0x48, 0x39,
	0xca, 0x74, 0x10, 0x48, 0x8b, 0x42, 0x08, 0x83, 0x02, 0x01, 0x48, 0x8b, 0x08, 0x48, 0x89, 0x4a, 0x08,
	0x5b, 0xc3, 0xbf, 0x01, 0x00, 0x00, 0x00, 0xe8, 0xaf, 0xff, 0xff, 0xff, 0x5b, 0xc3, 0xbe, 0x20, 0x00,
	0x00, 0x00, 0xff, 0xd0, 0x5b, 0xc3, 0x0f, 0x1f, 0x40, 0x00, 0x48, 0x8d, 0x6b, 0x11, 0x48, 0x8d, 0x45,
	0xff, 0x48, 0x3d, 0xff, 0x01, 0x00, 0x00, 0x77, 0x28, 0x48, 0x89, 0xef, 0x31, 0xed, 0x8d, 0x7f, 0xff,
	0xc1, 0xef, 0x04, 0x4c, 0x8b, 0x24, 0xfd, 0x08, 0x30, 0x40, 0x00, 0x49, 0x8b, 0x4c, 0x24, 0x10, 0x49,
	0x39, 0xcc, 0x75, 0x06, 0xe8, 0x6e, 0xff, 0xff, 0xff, 0xc3, 0x45, 0x31, 0xc0, 0xeb, 0x01, 0xc3, 0x41,
	0x83, 0x04, 0x24, 0x01, 0x49, 0x8b, 0x44, 0x24, 0x08, 0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x90, 0x48, 0x25, 0x00, 0xc0, 0xff, 0xff, 0x48, 0x8b, 0x48, 0x08, 0x48, 0x89,
	0x0e, 0x48, 0x89, 0x70, 0x08, 0x8b, 0x10, 0x48, 0x85, 0xc9, 0x74, 0x00, 0xc3, 0x0f, 0x1f, 0x80, 0x00,
	0x00, 0x00, 0x00, 0x48, 0x8b, 0x48, 0x08, 0x48, 0x89, 0x0e, 0x48, 0x89, 0x70, 0x08, 0x8b, 0x30, 0x48,
	0x85, 0xc9, 0x75, 0x00, 0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x66,
	0x90, 0x53, 0xe8, 0x4a, 0x00, 0x00, 0x00, 0x48, 0x89, 0xc3, 0x48, 0x85, 0xc0, 0x74, 0x08, 0x48, 0x83,
	0x05, 0x02, 0x23, 0x00, 0x00, 0x01, 0xff, 0x15, 0xf4, 0x22, 0x00, 0x00, 0x5b, 0xc3, 0x66, 0x90, 0xe9,
	0x2b, 0x00, 0x00, 0x00, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x1f, 0x00, 0x48, 0x8b,
	0x4a, 0x10, 0x48, 0x39, 0xca, 0x74, 0x08, 0x48, 0x8b, 0x42, 0x08, 0x48, 0x83, 0x02, 0x01, 0xc3, 0x66,
	0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x1f, 0x00, 0xf3, 0x0f, 0x1e, 0xfa,
	0xff, 0x25, 0xae, 0x22, 0x00, 0x00,
};

static const uint64_t starts[] = {0x401000, 0x401010, 0x401020, 0x401070, 0x4010c0,
				  0x4010e0, 0x401100, 0x401120, 0x401130};

static struct inline_image image_of(const uint8_t *code)
{
	return (struct inline_image){
		.text = {code, TEXT, TEXT_SIZE},
		.stubs = {{code + TEXT_SIZE, STUB, sizeof(program) - TEXT_SIZE}},
		.imports = {{0x403408, ABI_OP_MALLOC}, {0x403410, ABI_OP_FREE}},
		.import_count = 2,
		.starts = starts,
		.start_count = sizeof(starts) / sizeof(starts[0]),
	};
}

static const struct plan_site *site_at(const struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = 0; i < sites->count; i++)
		if (sites->sites[i].vaddr == vaddr)
			return &sites->sites[i];
	fail_msg("no site at 0x%llx", (unsigned long long)vaddr);
	return NULL;
}

#define NONE ABI_REG_COUNT

static void test_shapes(void **state)
{
	(void)state;
	struct inline_image image = image_of(program);
	struct inline_sites sites;

	assert_int_equal(inline_sites_find(&image, &sites), 0);
	assert_int_equal(sites.count, 9);
	assert_int_equal(sites.given_up_count, 0);
	assert_int_equal(sites.exact, 2);
	assert_true(site_at(&sites, 0x401045)->cookie ==
		    (ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_DX, NONE, NONE) | ABI_COOKIE_ADDEND(32)));
	assert_true(site_at(&sites, 0x40109b)->cookie ==
		    (ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_R12, ABI_REG_AX, NONE) |
		     ABI_COOKIE_ADDEND(1)));
	assert_true(site_at(&sites, 0x401010)->cookie ==
		    (ABI_COOKIE(ABI_OP_REFILL, EVENT_API_OBJ, NONE, NONE, NONE) | ABI_COOKIE_ADDEND(14)));
	assert_int_equal(site_at(&sites, 0x401010)->with_return, 1);
	assert_true(site_at(&sites, 0x4010d6)->cookie ==
		    ABI_COOKIE(ABI_OP_FREE, EVENT_API_OBJ, ABI_REG_SI, NONE, NONE));
	assert_true(site_at(&sites, 0x4010f0)->cookie ==
		    ABI_COOKIE(ABI_OP_POOL_FREE, EVENT_API_OBJ, ABI_REG_AX, NONE, NONE));
	assert_true(site_at(&sites, 0x401101)->cookie ==
		    ABI_COOKIE(ABI_OP_MALLOC, EVENT_API_LARGE, ABI_REG_DI, NONE, NONE));
	assert_int_equal(site_at(&sites, 0x401101)->with_return, 0);
	assert_true((site_at(&sites, 0x40110c)->cookie & 0xff) == ABI_OP_END);
	assert_true(site_at(&sites, 0x401116)->cookie ==
		    ABI_COOKIE(ABI_OP_FREE, EVENT_API_RAW, ABI_REG_DI, NONE, NONE));
	assert_true(site_at(&sites, 0x401120)->cookie ==
		    ABI_COOKIE(ABI_OP_MALLOC, EVENT_API_RAW, ABI_REG_DI, NONE, NONE));
	assert_int_equal(site_at(&sites, 0x401120)->with_return, 1);
	inline_sites_free(&sites);
}

/* A second way to the site may come with another size. */
static void test_joined_ways(void **state)
{
	(void)state;
	struct inline_image image;
	struct inline_sites sites;
	uint8_t code[sizeof(program)];

	memcpy(code, program, sizeof(code));
	/* In place of the decoy: jmp 401037, to where alloc_const loads the pool. */
	memcpy(code + 0x130, "\xe9\x02\xff\xff\xff\xc3\xc3\xc3", 8);
	image = image_of(code);
	assert_int_equal(inline_sites_find(&image, &sites), 0);
	assert_int_equal(sites.exact, 1);
	assert_true(site_at(&sites, 0x401045)->cookie ==
		    ABI_COOKIE(ABI_OP_POOL, EVENT_API_OBJ, ABI_REG_DX, NONE, NONE));
	inline_sites_free(&sites);
}

/* What has the shape but is in the midst of an instruction must not be probed. */
static void test_no_instruction(void **state)
{
	(void)state;
	struct inline_image image;
	struct inline_sites sites;
	uint8_t code[sizeof(program)];

	memcpy(code, program, sizeof(code));
	/* movabs, in place of the load of the pool, takes the eight bytes that follow along. */
	memcpy(code + 0x37, "\x48\xb8", 2);
	image = image_of(code);
	assert_int_equal(inline_sites_find(&image, &sites), 0);
	assert_int_equal(sites.given_up[INLINE_POOL], 1);
	assert_int_equal(sites.found[INLINE_POOL], 1);
	inline_sites_free(&sites);
}

/* A realloc that may leave its block where it is. */
static void test_resize(void **state)
{
	(void)state;
	/*
	 *	mov 0x24(%r12),%ebp; add $1,%ebp; shl $4,%ebp; cmp %rsi,%rbp; jb 1f
	 *	lea (,%rsi,4),%rax; lea (%rbp,%rbp,2),%rdx; cmp %rax,%rdx; jb 2f	# +0x20
	 *	mov %rsi,%rbp
	 * 1:	call 3f; test %rax,%rax; je 2f; mov %rbx,%rsi; mov %rax,%rdi; mov %rbp,%rdx; call 3f
	 * 2:	ret
	 * 3:	ret
	 */
	static const uint8_t resizing[] = {
		0x41, 0x8b, 0x6c, 0x24, 0x24, 0x83, 0xc5, 0x01, 0xc1, 0xe5, 0x04, 0x48, 0x39,
		0xf5, 0x72, 0x15, 0x48, 0x8d, 0x04, 0xb5, 0x00, 0x00, 0x00, 0x00, 0x48, 0x8d,
		0x54, 0x6d, 0x00, 0x48, 0x39, 0xc2, 0x72, 0x1b, 0x48, 0x89, 0xf5, 0xe8, 0x14,
		0x00, 0x00, 0x00, 0x48, 0x85, 0xc0, 0x74, 0x0e, 0x48, 0x89, 0xde, 0x48, 0x89,
		0xc7, 0x48, 0x89, 0xea, 0xe8, 0x01, 0x00, 0x00, 0x00, 0xc3, 0xc3,
	};
	uint8_t code[TEXT_SIZE + sizeof(resizing)];
	struct inline_image image = image_of(program);
	struct inline_sites sites;
	uint64_t more[sizeof(starts) / sizeof(starts[0]) + 1];

	memcpy(code, program, TEXT_SIZE);
	memcpy(code + TEXT_SIZE, resizing, sizeof(resizing));
	memcpy(more, starts, sizeof(starts));
	more[image.start_count] = TEXT + TEXT_SIZE;
	image.text = (struct inline_range){code, TEXT, sizeof(code)};
	image.stubs[0].bytes = 0;
	image.starts = more;
	image.start_count++;
	assert_int_equal(inline_sites_find(&image, &sites), 0);
	assert_int_equal(sites.found[INLINE_RESIZE], 1);
	assert_true(site_at(&sites, TEXT + TEXT_SIZE + 0x20)->cookie ==
		    ABI_COOKIE(ABI_OP_RESIZE, EVENT_API_OBJ, ABI_REG_BX, ABI_REG_SI, NONE));
	inline_sites_free(&sites);
}

/*
 * newref:	mov tracing,%eax; test %eax,%eax; jne 1f				# +0x8
 *		movq $1,(%rdi); ret
 *	1:	sub $24,%rsp; mov %rdi,8(%rsp); call slow; ret
 * copies:	cmpl $0,tracing; je 2f; jmp 3f						# +0x28
 *	2:	mov tracing,%r8d; nop; test %r8d,%r8d; jne 4f				# +0x37
 *		mov tracing,%ecx; test %ecx,%ecx; jne 5f				# of something else
 *		mov tracing,%ecx; test %ecx,%ecx; jne 6f				# +0x4b
 *		movq $type,8(%rbx); mov tracing,%ecx; test %ecx,%ecx; jne 3f		# +0x5d
 *		ret
 *	3:	mov %rbx,%rdi; call slow; jmp 2b
 *	4:	lea 0x10(%rbp),%rdi; jmp slow
 *	5:	mov %rbx,%rdi; call copies; ret
 *	6:	mov 8(%rsp),%rdi; call slow; ret
 * slow:	ret									# +0x84
 * newref2:	mov tracer,%rax; movq $1,(%rdi); test %rax,%rax; jne 1f; ret		# +0x96
 *	1:	cmp $slow,%rax; jne 2f; jmp slow
 *	2:	mov tracer+8,%rdx; xor %esi,%esi; jmp *%rax
 * copies2:	mov tracer,%rcx; test %rcx,%rcx; je 1f					# +0xb8
 *		mov %r12,%rdi; xor %esi,%esi; mov tracer+8,%rdx; call *%rcx
 *	1:	mov tracer,%rax; test %rax,%rax; je 1f					# an object's end
 *		mov %r12,%rdi; mov $1,%esi; mov tracer+8,%rdx; call *%rax
 *	1:	ret
 * copies3:	mov slot,%rax; mov 4(%rax),%eax; test %eax,%eax; jne 3f			# +0xf2
 *	1:	mov slot,%rdx; cmpl $0,4(%rdx); jne 4f					# +0xff
 *	2:	mov slot,%rdx; cmpl $0,4(%rdx); jne 5f					# of something else
 *		ret
 *	3:	mov %rbx,%rdi; call slow; jmp 1b
 *	4:	mov %r13,%rdi; call slow; jmp 2b
 *	5:	mov %r13,%rdi; call newref; ret
 */
static const uint8_t objects[] = {
	0x8b, 0x05, 0xae, 0x2e, 0x00, 0x00, 0x85, 0xc0, 0x75, 0x08, 0x48, 0xc7, 0x07, 0x01, 0x00, 0x00, 0x00,
	0xc3, 0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x7c, 0x24, 0x08, 0xe8, 0x64, 0x00, 0x00, 0x00, 0xc3, 0x83,
	0x3d, 0x8c, 0x2e, 0x00, 0x00, 0x00, 0x74, 0x02, 0xeb, 0x34, 0x44, 0x8b, 0x05, 0x81, 0x2e, 0x00, 0x00,
	0x90, 0x45, 0x85, 0xc0, 0x75, 0x31, 0x8b, 0x0d, 0x75, 0x2e, 0x00, 0x00, 0x85, 0xc9, 0x75, 0x2d, 0x8b,
	0x0d, 0x6b, 0x2e, 0x00, 0x00, 0x85, 0xc9, 0x75, 0x2c, 0x48, 0xc7, 0x43, 0x08, 0x00, 0x43, 0x40, 0x00,
	0x8b, 0x0d, 0x59, 0x2e, 0x00, 0x00, 0x85, 0xc9, 0x75, 0x01, 0xc3, 0x48, 0x89, 0xdf, 0xe8, 0x1c, 0x00,
	0x00, 0x00, 0xeb, 0xc2, 0x48, 0x8d, 0x7d, 0x10, 0xeb, 0x14, 0x48, 0x89, 0xdf, 0xe8, 0xa9, 0xff, 0xff,
	0xff, 0xc3, 0x48, 0x8b, 0x7c, 0x24, 0x08, 0xe8, 0x01, 0x00, 0x00, 0x00, 0xc3, 0xc3, 0x48, 0x8b, 0x05,
	0x24, 0x30, 0x00, 0x00, 0x48, 0xc7, 0x07, 0x01, 0x00, 0x00, 0x00, 0x48, 0x85, 0xc0, 0x75, 0x01, 0xc3,
	0x48, 0x3d, 0xd4, 0x11, 0x40, 0x00, 0x75, 0x02, 0xeb, 0xe1, 0x48, 0x8b, 0x15, 0x0e, 0x30, 0x00, 0x00,
	0x31, 0xf6, 0xff, 0xe0, 0x48, 0x8b, 0x0d, 0xfb, 0x2f, 0x00, 0x00, 0x48, 0x85, 0xc9, 0x74, 0x0e, 0x4c,
	0x89, 0xe7, 0x31, 0xf6, 0x48, 0x8b, 0x15, 0xf2, 0x2f, 0x00, 0x00, 0xff, 0xd1, 0x48, 0x8b, 0x05, 0xe1,
	0x2f, 0x00, 0x00, 0x48, 0x85, 0xc0, 0x74, 0x11, 0x4c, 0x89, 0xe7, 0xbe, 0x01, 0x00, 0x00, 0x00, 0x48,
	0x8b, 0x15, 0xd5, 0x2f, 0x00, 0x00, 0xff, 0xd0, 0xc3, 0x48, 0x8b, 0x05, 0xc3, 0x2e, 0x00, 0x00, 0x8b,
	0x40, 0x04, 0x85, 0xc0, 0x75, 0x1b, 0x48, 0x8b, 0x15, 0xb5, 0x2e, 0x00, 0x00, 0x83, 0x7a, 0x04, 0x00,
	0x75, 0x18, 0x48, 0x8b, 0x15, 0xa8, 0x2e, 0x00, 0x00, 0x83, 0x7a, 0x04, 0x00, 0x75, 0x15, 0xc3, 0x48,
	0x89, 0xdf, 0xe8, 0x6d, 0xff, 0xff, 0xff, 0xeb, 0xdb, 0x4c, 0x89, 0xef, 0xe8, 0x63, 0xff, 0xff, 0xff,
	0xeb, 0xde, 0x4c, 0x89, 0xef, 0xe8, 0xd5, 0xfe, 0xff, 0xff, 0xc3,
};

#define OBJECTS      (TEXT + TEXT_SIZE)
#define TRACING_SLOT 0x404100u
#define NEW_TYPE     0x404300u

/* The program, and after it the objects' code, in which the functions at these distances are. */
static void objects_find(uint64_t new_reference, uint64_t slot, const uint32_t *functions, size_t count,
			 struct inline_sites *out)
{
	uint8_t code[TEXT_SIZE + sizeof(objects)];
	struct inline_image image = image_of(program);
	uint64_t all[sizeof(starts) / sizeof(starts[0]) + 8];

	memcpy(code, program, TEXT_SIZE);
	memcpy(code + TEXT_SIZE, objects, sizeof(objects));
	memcpy(all, starts, sizeof(starts));
	for (size_t i = 0; i < count; i++)
		all[image.start_count++] = OBJECTS + functions[i];
	image.text = (struct inline_range){code, TEXT, sizeof(code)};
	image.stubs[0].bytes = 0;
	image.starts = all;
	image.new_reference = new_reference;
	image.tracing_slots[0] = slot;
	image.tracing_offset = 4;
	image.new_types[1] = NEW_TYPE;
	assert_int_equal(inline_sites_find(&image, out), 0);
}

static const uint32_t object_functions[] = {0, 0x21, 0x84, 0x85, 0xae, 0xe6};

static void assert_object(const struct inline_sites *sites, uint32_t at, uint32_t reg, int64_t addend)
{
	assert_true(site_at(sites, OBJECTS + at)->cookie ==
		    (ABI_COOKIE(ABI_OP_REUSE, EVENT_API_OBJ, reg, NONE, NONE) | ABI_COOKIE_ADDEND(addend)));
}

/* Every copy of what asks whether tracemalloc traces, and calls what _Py_NewReference calls then. */
static void test_objects(void **state)
{
	(void)state;
	struct inline_sites sites;

	objects_find(OBJECTS, 0, object_functions, 6, &sites);
	assert_int_equal(sites.found[INLINE_OBJECT], 3);
	assert_object(&sites, 0x8, ABI_REG_DI, 0);
	assert_object(&sites, 0x28, ABI_REG_BX, 0);
	assert_object(&sites, 0x37, ABI_REG_BP, 16);
	assert_int_equal(sites.given_up[INLINE_OBJECT], 1);
	assert_true(sites.given_up_list[0].vaddr == OBJECTS + 0x4b);
	assert_int_equal(sites.always_new, 1);
	inline_sites_free(&sites);
}

/*
 * Builds without link-time optimisation.
 *
 * newref:	nopl 0(%rax); mov tracing,%eax; test %eax,%eax; jne 1f; movq $1,(%rdi); ret; 1: jmp slow	# +0x7
 * slow:	ret									# +0x1b
 * calls:	mov typeslot,%rdx; mov %rdx,8(%rax); mov %rax,%rbp			# +0x1c
 *		mov (%rdx),%eax; add $1,%eax; je 1f; mov %eax,(%rdx)
 *	1:	mov %rbp,%rdi; call newref						# +0x36, of a new object
 *		mov %rdx,8(%rax); je 2f; mov %rbx,%rdi; call newref			# +0x44
 *	2:	mov %rbp,%rdi; mov %rcx,8(%rdi); jmp newref				# +0x50
 *		call *refslot; ret							# +0x55
 * address:	mov %rdi,%rdi; lea newref,%rax; ret						# +0x5c
 */
static const uint8_t calls[] = {
	0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00, 0x8b, 0x05, 0xa7, 0x2e, 0x00, 0x00, 0x85, 0xc0,
	0x75, 0x08, 0x48, 0xc7, 0x07, 0x01, 0x00, 0x00, 0x00, 0xc3, 0xeb, 0x00, 0xc3, 0x48, 0x8b,
	0x15, 0x95, 0x31, 0x00, 0x00, 0x48, 0x89, 0x50, 0x08, 0x48, 0x89, 0xc5, 0x8b, 0x02, 0x83,
	0xc0, 0x01, 0x74, 0x02, 0x89, 0x02, 0x48, 0x89, 0xef, 0xe8, 0xcc, 0xff, 0xff, 0xff, 0x48,
	0x89, 0x50, 0x08, 0x74, 0x08, 0x48, 0x89, 0xdf, 0xe8, 0xbe, 0xff, 0xff, 0xff, 0x48, 0x89,
	0xef, 0x48, 0x89, 0x4f, 0x08, 0xe9, 0xb2, 0xff, 0xff, 0xff, 0xff, 0x15, 0x65, 0x31, 0x00,
	0x00, 0xc3, 0x48, 0x89, 0xff, 0x48, 0x8d, 0x05, 0xa1, 0xff, 0xff, 0xff, 0xc3,
};

static void calls_find(size_t bytes, struct inline_sites *out)
{
	static const uint32_t functions[] = {0x7, 0x1b, 0x1c, 0x5c};
	uint8_t code[TEXT_SIZE + sizeof(calls)];
	struct inline_image image = image_of(program);
	uint64_t all[sizeof(starts) / sizeof(starts[0]) + 4];

	memcpy(code, program, TEXT_SIZE);
	memcpy(code + TEXT_SIZE, calls, sizeof(calls));
	memcpy(all, starts, sizeof(starts));
	for (size_t i = 0; i < 4 && functions[i] < bytes; i++)
		all[image.start_count++] = OBJECTS + functions[i];
	image.text = (struct inline_range){code, TEXT, TEXT_SIZE + bytes};
	image.stubs[0].bytes = 0;
	image.starts = all;
	image.new_reference = OBJECTS + functions[0];
	image.new_reference_slots[0] = 0x404310;
	image.new_slots[2] = 0x404308;
	assert_int_equal(inline_sites_find(&image, out), 0);
}

/* The calls take the function's place, unless its address gets about. */
static void test_object_calls(void **state)
{
	(void)state;
	struct inline_sites sites;

	calls_find(0x5c, &sites);
	assert_int_equal(sites.object_calls, 1);
	assert_int_equal(sites.found[INLINE_OBJECT], 3);
	assert_int_equal(sites.always_new, 1);
	assert_object(&sites, 0x44, ABI_REG_DI, 0);
	assert_object(&sites, 0x50, ABI_REG_DI, 0);
	assert_object(&sites, 0x55, ABI_REG_DI, 0);
	inline_sites_free(&sites);
	calls_find(sizeof(calls), &sites);
	assert_int_equal(sites.object_calls, 0);
	assert_int_equal(sites.found[INLINE_OBJECT], 1);
	assert_object(&sites, 0xf, ABI_REG_DI, 0);
	inline_sites_free(&sites);
}

/* From 3.13 on: whoever is the tracer is told of an object's end, too. */
static void test_objects_tracer(void **state)
{
	(void)state;
	struct inline_sites sites;

	objects_find(OBJECTS + 0x85, 0, object_functions, 6, &sites);
	assert_int_equal(sites.found[INLINE_OBJECT], 2);
	assert_object(&sites, 0x96, ABI_REG_DI, 0);
	assert_object(&sites, 0xb8, ABI_REG_R12, 0);
	assert_int_equal(sites.given_up_count, 0);
	inline_sites_free(&sites);
}

/* 3.8 has no such function; what most of the ways call must be it. */
static void test_objects_through_slot(void **state)
{
	(void)state;
	struct inline_sites sites;

	objects_find(0, TRACING_SLOT, object_functions, 6, &sites);
	assert_int_equal(sites.found[INLINE_OBJECT], 2);
	assert_object(&sites, 0xf2, ABI_REG_BX, 0);
	assert_object(&sites, 0xff, ABI_REG_R13, 0);
	inline_sites_free(&sites);
}

static void test_nothing(void **state)
{
	(void)state;
	static const uint8_t code[sizeof(program)];
	struct inline_image image = image_of(code), empty = {0};
	struct inline_sites sites;

	assert_int_equal(inline_sites_find(&image, &sites), -ENOENT);
	assert_int_equal(inline_sites_find(&empty, &sites), -ENOENT);
}

static struct elf_file *file_open(const char *path)
{
	struct elf_file *file = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && elf_file_open(&file, fd, path, NULL))
		close(fd);
	return file;
}

/* A distribution's interpreter: the allocators are inlined at many places and every one is understood. */
static void test_distribution(void **state)
{
	(void)state;
	struct elf_file *file = file_open("/usr/bin/python3");
	struct inline_sites sites;

	if (!file || elf_file_has_symtab(file) || plan_inline(file, &sites) == -ENOTSUP) {
		elf_file_close(file);
		print_message("/usr/bin/python3 is no stripped interpreter\n");
		skip();
	}
	if (sites.found[INLINE_POOL] < 20) {
		print_message("/usr/bin/python3 has nothing inlined\n");
		inline_sites_free(&sites);
		elf_file_close(file);
		skip();
	}
	assert_int_equal(sites.given_up_count, sites.given_up[INLINE_OBJECT]);
	assert_true(sites.found[INLINE_OBJECT] >= 20);
	assert_true(sites.given_up[INLINE_OBJECT] * 50 <= sites.found[INLINE_OBJECT]);
	assert_true(sites.exact * 10 >= sites.found[INLINE_POOL] * 8);
	assert_true(sites.found[INLINE_REFILL] >= 1);
	for (size_t i = 0; i < sites.count; i++) {
		uint64_t offset;

		assert_int_equal(elf_file_offset(file, sites.sites[i].vaddr, &offset), 0);
		assert_true(offset == sites.sites[i].offset);
	}
	inline_sites_free(&sites);
	elf_file_close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),         cmocka_unit_test(test_joined_ways),
		cmocka_unit_test(test_no_instruction), cmocka_unit_test(test_resize),
		cmocka_unit_test(test_objects),        cmocka_unit_test(test_object_calls),
		cmocka_unit_test(test_objects_tracer), cmocka_unit_test(test_objects_through_slot),
		cmocka_unit_test(test_nothing),        cmocka_unit_test(test_distribution),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
