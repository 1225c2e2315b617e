# SPDX-License-Identifier: Apache-2.0
# 40 functions of 40,000 bytes: pages of the table begin within functions and between them.
	.altmacro
	.macro function n
	.globl in_\n
f\n: .cfi_startproc
	.cfi_def_cfa_offset 16 + 8 * \n
	call f\n
	.skip 40000, 0x90
	call f\n
in_\n:
	ret
.cfi_endproc
	.skip 1000, 0x90
	.endm
	.text
	.set i, 0
	.rept 40
	function %i
	.set i, i + 1
	.endr
