# SPDX-License-Identifier: Apache-2.0
.text
	give
function allocate
	lea -1(%rsi), %rax
	cmp $0x1ff, %rax
	ja 1f
	mov pools(%rip), %rdx
	take at_pool
1:	call *slot(%rip)
in_function:	test %rax, %rax
	je 2f
	incq 0x440(%r12)
2:	ret
	call *slot(%rip) # this one is not counted
	ret
	jmp allocate_cold
	call raw
behind_jump:	test %rax, %rax
	jne 3f
	ret
3:	addq $1, 0x440(%rbp)
	ret
# What the call may have changed comes back first.
	call *slot(%rip)
restored:	mov (%rsp), %r8
	mov 8(%rsp), %rcx
	mov 0x10(%rsp), %r11
	mov 0x18(%rsp), %r9
	mov %rax, %r13
	mov 0x20(%rsp), %r10
	test %r13, %r13
	je 2b
	addq $1, 0x440(%r10)
	ret
end allocate
function allocate_cold
	mov %rbx, %rsi
	call *slot(%rip)
in_part:	test %rax, %rax
	je 2b
	incq 0x440(%r12)
	ret
end allocate_cold
function raw
	jmp *slot(%rip)
end raw
.local slot
.comm slot, 8, 8
