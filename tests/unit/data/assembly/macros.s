# SPDX-License-Identifier: Apache-2.0
# What the libraries of test_pymalloc_builds.c have in common.

# A function with its unwind table entry, as .eh_frame_hdr names its start.
.macro function name
.p2align 4
.type \name, @function
\name: .cfi_startproc
.endm

.macro end name
.cfi_endproc
.size \name, .-\name
.endm

# What is told of a new object, and the structure with the flag that asks for it, 4 bytes behind its
# beginning.
.macro told
function slow
	ret
end slow
.local config
.comm config, 16, 8
.endm

# A copy of _Py_NewReference in another function, its unlikely part elsewhere.
.macro copy name, cold
	cmpl $0, config+4(%rip)
\name: jne \cold
	ret
.endm

# That part.
.macro cold name
\name:	mov %rbx, %rdi
	call slow
	ret
.endm

# A pool in rdx gives a block, or there is none.
.macro take name
	mov 0x10(%rdx), %rdi
	cmp %rdi, %rdx
\name: je refill
	mov 8(%rdx), %rax
	incl (%rdx)
	mov (%rax), %rcx
	mov %rcx, 8(%rdx)
	ret
.endm

# A block goes back to its pool.
.macro give
function give
	mov 8(%rax), %rcx
	mov %rcx, (%rsi)
	mov %rsi, 8(%rax)
	test %rcx, %rcx
	je 1f
1:	ret
end give
function refill
	ret
end refill
.local pools
.comm pools, 1024, 8
.endm

# Is it the allocator of our own that is in the slot, or else it is called with that size; the way
# there is named slow.
.macro guarded slow
	mov slot(%rip), %rax
	lea impl(%rip), %rcx
	cmp %rcx, %rax
	jne \slow
.endm

# A copy of the allocator that makes pools itself: the block is the first of a pool that is taken into
# use then.
.macro make name, store
	movl $1, (%r9)
\store
	cmp %ebp, 0x24(%r9)
\name: jne 8f
	mov 8(%r9), %rax
	mov (%rax), %rdi
	mov %rdi, 8(%r9)
	ret
8:	mov %ebp, 0x24(%r9)
	mov %rdi, 8(%r9)
	ret
.endm
