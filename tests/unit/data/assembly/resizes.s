# SPDX-License-Identifier: Apache-2.0
.text
	give
function allocate
	mov pools(%rip), %rdx
	take at_pool
end allocate
function question
	and $-16384, %rdi
	shl $4, %ebp
	cmp %rsi, %rbp
	jb 1f
	lea (,%rsi,4), %rax
	lea (%rbp,%rbp,2), %rdx
	cmp %rax, %rdx
at_question: jb 2f
	test %rsi, %rsi
	je 2f
	mov %rsi, %rbp
1:	call refill
	mov %rbx, %rsi
	call refill
2:	ret
end question
function before
	mov %rdi, %r12
	and $-16384, %r12
	shl $4, %r14d
	add $0x10, %r14d
	cmp %rdx, %r14
	jb 1f
	lea (,%rdx,4), %rax
	lea (%r14,%r14,2), %rcx
	mov %rdx, %r14
	cmp %rcx, %rax
at_before: ja 2f
1:	ret
2:	mov %rdi, %rax
	ret
end before
function other_way
	shl $4, %ebp
	cmp %r15, %rbp
	jae 1f
	ret
	.skip 64, 0x90
	ret
1:	mov %r12, %rax
	lea (%rbp,%rbp,2), %rdx
	shl $5, %rax
	cmp %rax, %rdx
at_other_way: jae 3f
2:	ret
3:	mov %r15, %rbp
	call refill
	mov %rbx, %rsi
	call refill
	ret
end other_way
# Not of a size class.
function another
	lea (%rbp,%rbp,2), %rdx
	cmp %rax, %rdx
at_another: jb 1f
	mov %r15, %rbp
1:	ret
end another
