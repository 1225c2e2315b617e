# SPDX-License-Identifier: Apache-2.0
# Code without entries between functions: a large body of it, and a small one.
	.macro function name
	.globl \name, in_\name
\name: .cfi_startproc
	call \name
in_\name:
	ret
.cfi_endproc
	.endm
	.text
	function first
	.skip 100000, 0x90
	.globl in_large
in_large:
	.skip 60000, 0x90
	function second
	.skip 30000, 0x90
	.globl in_small
in_small:
	.skip 30000, 0x90
	function third
