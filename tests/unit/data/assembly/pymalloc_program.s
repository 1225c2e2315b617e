# SPDX-License-Identifier: Apache-2.0
# The shapes of inlined allocators; test_pymalloc_sites.c.
.set text, begin # at 0x401000 in the process
.set slot, text + 0x2000
.set pools_16, text + 0x2018
.set got_malloc, text + 0x2408
.set got_free, text + 0x2410
.set counter, text + 0x2418
.set IMPL, 0x401000
.set POOLS, 0x403008
.text
begin:
impl:
	ret
.p2align 4
refill:
	push %rbx
	pop %rbx
	ret
.p2align 4
alloc_const:
	push %rbx
	mov slot(%rip), %rax
	mov slot(%rip), %rdi
	cmp $IMPL, %rax
	jne 2f
at_load:
	mov pools_16(%rip), %rdx
	mov 0x10(%rdx), %rcx
	cmp %rcx, %rdx
at_const:
	je 1f
	mov 0x8(%rdx), %rax
	addl $0x1, (%rdx)
	mov (%rax), %rcx
	mov %rcx, 0x8(%rdx)
	pop %rbx
	ret
1:	mov $0x1, %edi
	call refill
	pop %rbx
	ret
2:	mov $0x20, %esi
	call *%rax
	pop %rbx
	ret
.p2align 4
alloc_var:
	lea 0x11(%rbx), %rbp
	lea -0x1(%rbp), %rax
	cmp $0x1ff, %rax
	ja 2f
	mov %rbp, %rdi
	xor %ebp, %ebp
	lea -0x1(%rdi), %edi
	shr $0x4, %edi
	mov POOLS(,%rdi,8), %r12
	mov 0x10(%r12), %rcx
	cmp %rcx, %r12
at_var:
	jne 1f
	call refill
	ret
1:	xor %r8d, %r8d
	jmp 3f
2:	ret
3:	addl $0x1, (%r12)
	mov 0x8(%r12), %rax
	ret
.p2align 4
give:
	and $0xffffffffffffc000, %rax
	mov 0x8(%rax), %rcx
	mov %rcx, (%rsi)
	mov %rsi, 0x8(%rax)
	mov (%rax), %edx
	test %rcx, %rcx
at_give:
	je 1f
1:	ret
.p2align 4
give_lost:
	mov 0x8(%rax), %rcx
	mov %rcx, (%rsi)
	mov %rsi, 0x8(%rax)
	mov (%rax), %esi
	test %rcx, %rcx
at_give_lost:
	jne 1f
1:	ret
.p2align 4
large:
	push %rbx
at_malloc:
	call stub_malloc
	mov %rax, %rbx
	test %rax, %rax
at_malloc_end:
	je 1f
	addq $0x1, counter(%rip)
at_free:
1:	call *got_free(%rip)
	pop %rbx
	ret
.p2align 4
tail:
	{disp32} jmp stub_malloc
	{disp32} nopl (%rax,%rax,1)
.p2align 4
decoy:
	mov 0x10(%rdx), %rcx
	cmp %rcx, %rdx
	je 1f
	mov 0x8(%rdx), %rax
	addq $0x1, (%rdx)
1:	ret
.p2align 4
stub_malloc:
	endbr64
	jmp *got_malloc(%rip)
end:
