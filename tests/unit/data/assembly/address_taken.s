# SPDX-License-Identifier: Apache-2.0
.text
.globl _Py_NewReference
function _Py_NewReference
	endbr64
	jmp body
end _Py_NewReference
function body
	lea config(%rip), %rax
	cmpl $0, 4(%rax)
at_body: jne 1f
	movq $1, (%rdi)
	ret
1:	sub $24, %rsp
	mov %rdi, 8(%rsp)
	call slow
	ret
end body
function copies
	lea config(%rip), %r12
	mov 8(%r12), %eax
	mov 4(%r12), %ecx
	test %ecx, %ecx
at_hoisted: jne 2f
1:	cmpl $0, config+4(%rip)
at_direct: je 1f
	jmp copies_cold
1:	lea config(%rip), %rax
	cmpl $0, 8(%rax)
at_other_field: jne 2f
	lea config(%rip), %rax
	mov %rdx, %rax
	cmpl $0, 4(%rax)
at_other_structure: jne 2f
	call body
	lea body(%rip), %rax # so not all of its calls are known
	ret
2:	mov %rbx, %rdi
	call slow
	jmp 1b
end copies
# A part that was split off begins like a function.
function copies_cold
	mov %r13, %rdi
	call slow
	ret
end copies_cold
	told
