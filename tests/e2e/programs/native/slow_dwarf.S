/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function of 200 requests, WORK, whose DWARF has three million blocks (of the file "blocks") that hold none of them: each address
 * is looked for in all of them.
 */
	.text
	.globl WORK
	.type WORK,@function
WORK:
	push %rbp
	mov %rsp,%rbp
	.rept 200
	mov $16,%edi
	call malloc@plt
	.endr
	pop %rbp
	ret
.Lend:
	.size WORK,.-WORK
	.section .note.GNU-stack,"",@progbits
	.section .debug_abbrev,"",@progbits
	/* compile unit: low_pc, high_pc, name */
	.uleb128 1; .uleb128 0x11; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .uleb128 3; .uleb128 8; .byte 0,0
	/* function: the same */
	.uleb128 2; .uleb128 0x2e; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .uleb128 3; .uleb128 8; .byte 0,0
	/* block: low_pc, high_pc */
	.uleb128 3; .uleb128 0x0b; .byte 0; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 6; .byte 0,0
	.byte 0
	.section .debug_info,"",@progbits
	.long .Linfo_end - .Linfo
.Linfo:
	.short 4
	.long 0
	.byte 8
	.uleb128 1; .quad WORK; .quad .Lend - WORK; .asciz "work.c"
	.uleb128 2; .quad WORK; .quad .Lend - WORK; .asciz "work"
	.rept 3000
	.incbin "blocks"
	.endr
	.byte 0,0
.Linfo_end:
