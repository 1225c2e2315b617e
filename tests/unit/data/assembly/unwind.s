# SPDX-License-Identifier: Apache-2.0
# A function for each kind of unwind rule. symbol NAME names the return address of the call
# before it.
	.macro symbol name
	.globl \name
	.type \name, @function
\name:
	.endm
.text
callee: ret
plain: .cfi_startproc
	sub $24, %rsp
	.cfi_adjust_cfa_offset 24
	call callee
	symbol in_plain
	add $24, %rsp
	.cfi_adjust_cfa_offset -24
	ret
.cfi_endproc
with_pointer: .cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset rbp, -16
	mov %rsp, %rbp
	.cfi_def_cfa_register rbp
	call *%rax
	symbol in_with_pointer
	pop %rbp
	.cfi_def_cfa rsp, 8
	ret
.cfi_endproc
# as gcc realigns a stack: CFA = *(rbp - 8), rbp at *rbp
realigned: .cfi_startproc
	.cfi_escape 0x0f, 3, 0x76, 0x78, 0x06
	.cfi_escape 0x10, 6, 2, 0x76, 0
	call callee
	symbol in_realigned
	ret
.cfi_endproc
# as OpenSSL's: CFA = *(rsp + 64) + 8
saved: .cfi_startproc
	.cfi_escape 0x0f, 6, 0x77, 0xc0, 0, 0x06, 0x23, 8
	.cfi_offset rbp, -24
	call *16(%rax,%rbx)
	symbol in_saved
	ret
.cfi_endproc
# as libgcrypt's: a register after an expression, with the offset from before it
after_expression: .cfi_startproc
	.cfi_def_cfa_offset 56
	.cfi_def_cfa_register rax
	.cfi_escape 0x0f, 6, 0x77, 0xc0, 0, 0x06, 0x23, 8
	.cfi_def_cfa_register rsp
	call callee
	symbol in_after_expression
	ret
.cfi_endproc
other_register: .cfi_startproc
	.cfi_def_cfa r10, 0
	call callee
	symbol in_other_register
	ret
.cfi_endproc
outermost: .cfi_startproc
	.cfi_undefined rip
	call callee
	symbol in_outermost
	hlt
.cfi_endproc
	nop; nop # padding before a function without an entry
bare:	call callee
	symbol in_bare
	ret
	.skip 64, 0x90
# the return address of a signal's handler is the begin of the function
.cfi_startproc
	.cfi_signal_frame
	nop
	symbol restore
	mov $15, %eax
	syscall
.cfi_endproc
	.skip 64, 0x90
	symbol nowhere
	nop
two_gigabytes: .cfi_startproc
	.cfi_def_cfa_offset 0x7ffffff8
	call callee
	symbol in_two_gigabytes
	.cfi_def_cfa_offset 0x80000008
	call callee
	symbol in_more
	ret
.cfi_endproc
