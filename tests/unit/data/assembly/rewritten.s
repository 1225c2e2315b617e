# SPDX-License-Identifier: Apache-2.0
.text
	told
function moved
	copy at_moved, moved_cold
	call called
	lea taken(%rip), %rax
	movabs $0x1122e8000000, %rax # the byte of a call, of none
end moved
.section .text.cold, "ax", @progbits
function moved_cold
	cold in_cold
end moved_cold
.section .bolt.org.text, "ax", @progbits
.globl _Py_NewReference
function _Py_NewReference
	cmpl $0, config+4(%rip)
at_function: jne 1f
	ret
1:	call slow
	ret
end _Py_NewReference
function called
	copy at_called, called_part
end called
function part
	.skip 200, 0x90 # the jump to it is a long one
	cold called_part
end part
function taken
	copy at_taken, 1f
	cold 1
end taken
function listed
	copy at_listed, 1f
	cold 1
end listed
function original
	copy at_original, 1f
	cold 1
	jmp only_original
end original
function only_original
	copy at_only_original, 1f
	cold 1
end only_original
.data
.quad listed
