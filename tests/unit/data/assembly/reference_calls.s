# SPDX-License-Identifier: Apache-2.0
# Builds without link-time optimisation: calls of _Py_NewReference.
.set text, begin - 0x150 # begin is at 0x401150 in the process
.set tracing, text + 0x3004
.set type_slot, text + 0x3308
.set newref_slot, text + 0x3310
.text
begin:
padding:
	{disp32} nopl (%rax)
newref:
	mov tracing(%rip), %eax
	test %eax, %eax
at_newref:
	jne 1f
	movq $0x1, (%rdi)
	ret
1:	jmp slow
slow:
	ret
calls:
	mov type_slot(%rip), %rdx
	mov %rdx, 0x8(%rax)
	mov %rax, %rbp
	mov (%rdx), %eax
	add $0x1, %eax
	je 1f
	mov %eax, (%rdx)
1:	mov %rbp, %rdi
at_new:
	call newref
	mov %rdx, 0x8(%rax)
	je 2f
	mov %rbx, %rdi
at_call:
	call newref
2:	mov %rbp, %rdi
	mov %rcx, 0x8(%rdi)
at_jump:
	{disp32} jmp newref
at_slot_call:
	call *newref_slot(%rip)
	ret
address:
	mov %rdi, %rdi
	lea newref(%rip), %rax
	ret
end:
