# SPDX-License-Identifier: Apache-2.0
.text
	give
function size_itself
	test %rbx, %rbx
	je 1f
	cmp $0x200, %rbx
	ja 1f
	mov pools(%rip), %rdx
	take at_itself
1:	ret
end size_itself
function size_wrapped
	lea -0x201(%rsi), %rax
	cmp $-0x200, %rax
	jb 1f
	mov pools(%rip), %rdx
	take at_wrapped
1:	ret
end size_wrapped
function size_other_way
	lea -1(%rsi), %rax
	cmp $0x200, %rax
	jb 1f
	ret
1:	mov pools(%rip), %rdx
	take at_other_way
end size_other_way
# Not of 512 values: no size.
function no_size
	cmp $0x1fe, %rbx
	ja 1f
	mov pools(%rip), %rdx
	take at_no_size
1:	ret
end no_size
# Both ways have compared.
function two_ways
	cmp $0x200, %rbx
	ja 2f
1:	lea -1(%rbx), %esi
	shr $4, %esi
	lea (%rsi,%rsi), %eax
	mov (%r8,%rax,8), %rdx
	take at_two_ways
2:	ret
	cmp $0x200, %rbx
	jbe 1b
	ret
end two_ways
function two_ways_masked
	cmp $0x200, %rbx
	ja 2f
1:	lea -1(%r9), %eax
	and $-16, %eax
	mov (%r8,%rax), %rdx
	take at_masked
2:	ret
	jmp 1b
end two_ways_masked
# No comparison: the way not taken passes the size to the function of that slot.
.local allocator
.comm allocator, 40, 8
.macro slot name, offset, second, third
function size_\name
	mov allocator+\offset(%rip), %rax
	mov allocator(%rip), %rdi
	lea give(%rip), %rcx
	cmp %rcx, %rax
	jne 1f
	mov pools(%rip), %rdx
	take at_\name
1:	mov \third, %rdx
	mov \second, %rsi
	call *%rax
	ret
end size_\name
.endm
	slot malloc, 8, $0x38, $7
	slot calloc, 16, $2, $0x30
	slot calloc_of_one, 16, $1, %r12
	slot calloc_of_many, 16, %r12, $8
