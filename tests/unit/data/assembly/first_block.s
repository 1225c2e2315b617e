# SPDX-License-Identifier: Apache-2.0
.text
	give
function allocate
	lea -1(%rsi), %rax
	cmp $0x1ff, %rax
	ja 2f
	mov pools(%rip), %rdx
	mov 0x10(%rdx), %rdi
	cmp %rdi, %rdx
at_pool: jne 1f
	test %r8, %r8
	je 2f
	make at_first
1:	mov 8(%rdx), %rax
	incl (%rdx)
	mov (%rax), %rcx
	mov %rcx, 8(%rdx)
2:	ret
end allocate
