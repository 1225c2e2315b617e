# SPDX-License-Identifier: Apache-2.0
# Functions with two ways to the same place, on each of which a type without a free list is put
# into the object.
.set text, begin - 0x150 # begin is at 0x401150 in the process
.set tracing, text + 0x3100
.set type, text + 0x3300
.set OTHER_TYPE, 0x404200
.set TYPE, 0x404300
.text
begin:
newref:
	mov tracing(%rip), %eax
	test %eax, %eax
	jne 1f
	movq $0x1, (%rdi)
	ret
1:	jmp slow
slow:
	ret
all:
	mov 0x8(%rax), %rbx
	test %rdx, %rdx
	je 1f
	movq $TYPE, 0x8(%rbx)
	cmp $0x1, %eax
	{disp32} jne 2f
all_join:
	mov tracing(%rip), %ecx
	test %ecx, %ecx
at_all:
	jne 3f
	ret
1:	movq $TYPE, 0x8(%rbx)
	{disp32} jne all_join
	jmp detour_all
2:	jmp detour_all
3:	mov %rbx, %rdi
	call slow
	ret
# The second way has another type.
other:
	mov 0x8(%rax), %rbx
	test %rdx, %rdx
	je 1f
	movq $TYPE, 0x8(%rbx)
	cmp $0x1, %eax
	{disp32} jne 2f
other_join:
	mov tracing(%rip), %ecx
	test %ecx, %ecx
at_other:
	jne 3f
	ret
1:	movq $OTHER_TYPE, 0x8(%rbx)
	{disp32} jne other_join
	jmp detour_other
2:	jmp detour_other
3:	mov %rbx, %rdi
	call slow
	ret
# Its detour is also reached by falling through.
falls:
	mov 0x8(%rax), %rbx
	test %rdx, %rdx
	je 1f
	movq $TYPE, 0x8(%rbx)
	cmp $0x1, %eax
	{disp32} jne 2f
falls_join:
	mov tracing(%rip), %ecx
	test %ecx, %ecx
at_falls:
	jne 3f
	ret
1:	movq $TYPE, 0x8(%rbx)
	{disp32} jne falls_join
	jmp detour_falls
2:	jmp detour_falls
3:	mov %rbx, %rdi
	call slow
	ret
# Its detour is also the target of a jump from behind.
short:
	mov 0x8(%rax), %rbx
	test %rdx, %rdx
	je 1f
	movq $TYPE, 0x8(%rbx)
	cmp $0x1, %eax
	{disp32} jne 2f
short_join:
	mov tracing(%rip), %ecx
	test %ecx, %ecx
at_short:
	jne 3f
	ret
1:	movq $TYPE, 0x8(%rbx)
	{disp32} jne short_join
	jmp detour_short
2:	jmp detour_short
3:	mov %rbx, %rdi
	call slow
	ret
# Its detour does something else.
else:
	mov 0x8(%rax), %rbx
	test %rdx, %rdx
	je 1f
	movq $TYPE, 0x8(%rbx)
	cmp $0x1, %eax
	{disp32} jne 2f
else_join:
	mov tracing(%rip), %ecx
	test %ecx, %ecx
at_else:
	jne 3f
	ret
1:	movq $TYPE, 0x8(%rbx)
	{disp32} jne else_join
	jmp detour_else
2:	jmp detour_else
3:	mov %rbx, %rdi
	call slow
	ret
# Its detour changes the object's register.
clobber:
	mov 0x8(%rax), %rbx
	test %rdx, %rdx
	je 1f
	movq $TYPE, 0x8(%rbx)
	cmp $0x1, %eax
	{disp32} jne 2f
clobber_join:
	mov tracing(%rip), %ecx
	test %ecx, %ecx
at_clobber:
	jne 3f
	ret
1:	movq $TYPE, 0x8(%rbx)
	{disp32} jne clobber_join
	{disp32} jmp detour_clobber
2:	{disp32} jmp detour_clobber
3:	mov %rbx, %rdi
	call slow
	ret
detours:
	jmp slow
detour_all:
	add $0x1, %eax
	mov %eax, type(%rip)
	jmp all_join
detour_other:
	mov %eax, type(%rip)
	jmp other_join
	nop
detour_falls:
	mov %eax, type(%rip)
	jmp falls_join
detour_short:
	mov %eax, type(%rip)
	jmp short_join
	jmp detour_short
	jmp slow
detour_else:
	mov %eax, tracing(%rip)
	jmp else_join
detour_clobber:
.ifdef COUNTED
	addq $0x1, type(%rip)
	{disp32} jmp clobber_join
	nop
.else
	add $0x1, %ebx
	mov %ebx, type(%rip)
	{disp32} jmp clobber_join
.endif
end:
