# SPDX-License-Identifier: Apache-2.0
.text
.globl _Py_NewReference
function _Py_NewReference
	mov (%rsi), %rax
	test %rax, %rax
	jne 1f
	ret
1:	call slow
	ret
end _Py_NewReference
	told
