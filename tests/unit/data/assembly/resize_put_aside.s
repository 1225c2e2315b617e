# SPDX-License-Identifier: Apache-2.0
# A realloc that keeps the address of its block on the stack.
.set text, begin - 0x150 # begin is at 0x401150 in the process
.text
begin:
realloc:
	mov %rbx, %r12
at_mask:
	and $0xffffffffffffc000, %r12
	mov 0x24(%r12), %ebp
	add $0x1, %ebp
	shl $0x4, %ebp
	cmp %rsi, %rbp
	jb 1f
	lea 0x0(,%rsi,4), %rax
	lea 0x0(%rbp,%rbp,2), %rdx
	cmp %rax, %rdx
at_resize:
	jb 2f
	mov %rsi, %rbp
1:	call 3f
	test %rax, %rax
	je 2f
	mov (%rsp), %rsi
	mov %rax, %rdi
	mov %rbp, %rdx
	call 3f
2:	ret
3:	ret
end:
