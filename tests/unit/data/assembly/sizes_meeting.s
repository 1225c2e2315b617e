# SPDX-License-Identifier: Apache-2.0
.text
	give
function impl
	ret
end impl
.local slot
.comm slot, 8, 8
function other_register
	test %rdi, %rdi
	je 2f
	lea 0x29(%rsi), %rax
	mov %rax, %r15
	cmp $0x200, %rax
	jg 3f
1:	sub $1, %eax
	shr $4, %eax
	lea (%rax,%rax), %esi
	mov (%r8,%rsi,8), %rdx
	take at_other_register
2:	mov $0x2a, %r15d
	mov $0x2a, %eax
	jmp 1b
3:	ret
end other_register
function same_constant
	guarded 4f
5:	mov (%r8), %rdx
	take at_same_constant
4:	mov $8, %esi
	call *%rax
	ret
end same_constant
function same_constant_cold
	.skip 200, 0x90 # the jump is a long one
	call impl
	guarded 4b
	jmp 5b
end same_constant_cold
function two_constants
	test %rdi, %rdi
	je 8f
	guarded 6f
	mov $0x20, %r9d
7:	mov (%r8), %rdx
	take at_two_constants
8:
	guarded 9f
	mov $0x24, %r9d
	jmp 7b
6:	mov $0x20, %esi
	call *%rax
	ret
9:	mov $0x24, %esi
	call *%rax
	ret
end two_constants
# Two sizes, and no register says which.
function not_told
	test %rdi, %rdi
	je 8f
	guarded 6f
7:	mov (%r8), %rdx
	take at_not_told
8:
	guarded 9f
	jmp 7b
6:	mov $0x20, %esi
	call *%rax
	ret
9:	mov $0x24, %esi
	call *%rax
	ret
end not_told
