# SPDX-License-Identifier: Apache-2.0
# Functions without an entry in .eh_frame. symbol NAME names the return address of the call before.
	.macro symbol name
	.globl \name
	.type \name, @function
\name:
	.endm
	.text
callee:	ret
plain:	sub $24, %rsp
	call callee
	symbol in_plain
	add $24, %rsp
	ret
# rbp at CFA - 16, and a branch whose ways agree
pushed:	push %rbp
	push %rbx
	sub $8, %rsp
	call callee
	symbol in_pushed
	test %eax, %eax
	je 1f
	add $8, %rsp
	pop %rbx
	pop %rbp
	ret
1:	lea 8(%rsp), %rsp
	pop %rbx
	pop %rbp
	jmp callee
pointer: push %rbp
	mov %rsp, %rbp
	and $-64, %rsp
	sub %rax, %rsp
	call *%rdx
	symbol in_pointer
	leave
	ret
# the epilogue of gcc with saved registers below rbp
lowered: push %rbp
	mov %rsp, %rbp
	push %rbx
	push %r12
	sub %rax, %rsp
	call callee
	symbol in_lowered
	lea -16(%rbp), %rsp
	pop %r12
	pop %rbx
	pop %rbp
	ret
disagreeing:
	sub $24, %rsp
	call callee
	symbol in_disagreeing
	test %eax, %eax
	je 2f
	add $24, %rsp
	ret
2:	add $40, %rsp
	ret
# stops at once: what follows its calls is another function
stop:	hlt
stopping: sub $24, %rsp
	call callee
	symbol in_stopping
	call stop
	symbol in_stopped
# not called by anyone: only the alignment of rsp tells that it begins here
behind:	push %rbx
	call callee
	symbol in_behind
	pop %rbx
	ret
# on to the next function after a function that another file has, and that may not return
outside: sub $8, %rsp
	call callee
	symbol in_outside
	call *%rax
last:	push %rbx
	sub $16, %rsp
	call callee
	symbol in_last
	add $16, %rsp
	pop %rbx
	ret
# its rbp is lost
lost:	push %rbp
	mov %rdi, %rbp
	call callee
	symbol in_lost
	mov (%rsp), %rbp
	add $8, %rsp
	ret
	.cfi_startproc
	.cfi_def_cfa_offset 16
	call callee
	symbol in_covered
	add $40, %rsp
	ret
	.cfi_endproc
