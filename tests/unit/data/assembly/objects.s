# SPDX-License-Identifier: Apache-2.0
# Questions whether tracemalloc traces a new object, in several shapes.
.set text, begin - 0x150 # begin is at 0x401150 in the process
.set tracing, text + 0x3004
.set slot, text + 0x3100
.set tracer, text + 0x3200
.set tracer_8, text + 0x3208
.set SLOW, 0x4011d4
.set TYPE, 0x404300
.text
begin:
newref:
	mov tracing(%rip), %eax
	test %eax, %eax
at_newref:
	jne 1f
	movq $0x1, (%rdi)
	ret
1:	sub $0x18, %rsp
	mov %rdi, 0x8(%rsp)
	call slow
	ret
copies:
	cmpl $0x0, tracing(%rip)
at_copy:
	je 1f
	jmp 2f
1:	mov tracing(%rip), %r8d
	nop
	test %r8d, %r8d
at_copy_16:
	jne 3f
	mov tracing(%rip), %ecx
	test %ecx, %ecx
	jne 4f
	mov tracing(%rip), %ecx
	test %ecx, %ecx
at_unknown:
	jne 5f
	movq $TYPE, 0x8(%rbx)
	mov tracing(%rip), %ecx
	test %ecx, %ecx
at_new_type:
	jne 2f
	ret
2:	mov %rbx, %rdi
	call slow
	jmp 1b
3:	lea 0x10(%rbp), %rdi
	jmp slow
4:	mov %rbx, %rdi
	call copies
	ret
5:	mov 0x8(%rsp), %rdi
	call slow
	ret
slow:
	ret
newref_tracer:
	mov tracer(%rip), %rax
	movq $0x1, (%rdi)
	test %rax, %rax
at_newref_tracer:
	jne 1f
	ret
1:	cmp $SLOW, %rax
	jne 2f
	jmp slow
2:	mov tracer_8(%rip), %rdx
	xor %esi, %esi
	jmp *%rax
copies_tracer:
	mov tracer(%rip), %rcx
	test %rcx, %rcx
at_copy_tracer:
	je 1f
	mov %r12, %rdi
	xor %esi, %esi
	mov tracer_8(%rip), %rdx
	call *%rcx
1:	mov tracer(%rip), %rax
	test %rax, %rax
	je 2f
	mov %r12, %rdi
	mov $0x1, %esi
	mov tracer_8(%rip), %rdx
	call *%rax
2:	ret
copies_slot:
	mov slot(%rip), %rax
	mov 0x4(%rax), %eax
	test %eax, %eax
at_copy_slot:
	jne 3f
1:	mov slot(%rip), %rdx
	cmpl $0x0, 0x4(%rdx)
at_second_copy_slot:
	jne 4f
2:	mov slot(%rip), %rdx
	cmpl $0x0, 0x4(%rdx)
	jne 5f
	ret
3:	mov %rbx, %rdi
	call slow
	jmp 1b
4:	mov %r13, %rdi
	call slow
	jmp 2b
5:	mov %r13, %rdi
	call newref
	ret
end:
