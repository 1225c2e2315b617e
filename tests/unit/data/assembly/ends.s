# SPDX-License-Identifier: Apache-2.0
.text
	give
function allocate
	lea -1(%rsi), %rax
	cmp $0x1ff, %rax
	ja 1f
	mov pools(%rip), %rdx
	take at_pool
1:	mov %rsi, %rdi
	jmp malloc@plt
end allocate
function release
	test %rsi, %rsi
	jne give
	jmp free@plt
end release
.globl PyObject_Malloc, PyObject_Free, PyMem_RawMalloc, PyMem_Malloc
function PyObject_Malloc
	mov %rdi, %rsi
	mov runtime@GOTPCREL(%rip), %rax
	mov 8(%rax), %rdi
	jmp *16(%rax)
end PyObject_Malloc
function PyObject_Free
	mov slots+24(%rip), %rcx
	jmp *%rcx
end PyObject_Free
function PyMem_RawMalloc
	call malloc@plt
	ret
end PyMem_RawMalloc
function PyMem_Malloc
	jmp *(%rdi)
end PyMem_Malloc
.data
.globl runtime
.type runtime, @object
.size runtime, 32
runtime:
slots:	.quad 0, 0, allocate, release
