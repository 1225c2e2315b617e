// SPDX-License-Identifier: Apache-2.0
// The shapes of inlined allocators and objects, in arm64's instructions. Loaded at 0x401000; pages
// of variables are 0x500000 bytes above the code.

// A size that is not known; x5: the table of pools.
.ifndef FACTOR
.set FACTOR, 3
.endif
alloc_var:
	stp	x29, x30, [sp, #-32]!
	sub	x1, x0, #1
	mov	x19, x0
	cmp	x1, #511
	b.hi	large
	sub	w3, w19, #1
	lsr	w3, w3, #4
	ubfiz	x2, x3, #1, #28
	ldr	x2, [x5, x2, lsl #3]
	ldr	x4, [x2, #16]
	cmp	x2, x4
at_var:
	b.eq	full
	ldr	x0, [x2, #8]
	ldr	w1, [x2]
	add	w1, w1, #1
	str	w1, [x2]
	ldr	x1, [x0]
	str	x1, [x2, #8]
	cbz	x1, done
done:
	ldp	x29, x30, [sp], #32
	ret
full:
	mov	w0, w3
	bl	refill
	cbnz	x0, done
large:
	mov	x0, x19
at_malloc:
	bl	malloc
at_malloc_end:
	cbz	x0, done
	adrp	x2, 0x500000
	ldr	x1, [x2, #3144]
	add	x1, x1, #1
	str	x1, [x2, #3144]
	b	done

// A size that only the call of a replaced allocator shows; the pool is compared the other way round.
alloc_const:
	adrp	x7, 0x500000
	adr	x3, alloc_var
	ldr	x4, [x7, #24]
	cmp	x4, x3
	b.ne	replaced
	ldr	x6, [x5, #16]
	ldr	x4, [x6, #16]
	cmp	x4, x6
at_const:
	b.eq	full
	ldr	w8, [x6]
	ldr	x0, [x6, #8]
	add	w8, w8, #1
	ldr	x1, [x0]
	str	w8, [x6]
	str	x1, [x6, #8]
	ret
replaced:
	mov	x1, #32
	ldr	x0, [x7, #16]
	br	x4

// Not a pool: nothing counts its blocks.
no_pool:
	ldr	x4, [x6, #16]
	cmp	x4, x6
	b.eq	full
	ldr	x0, [x6, #8]
	ldr	x1, [x0]
	str	x1, [x6, #8]
	ret

give:
	and	x2, x0, #0xffffffffffffc000
	ldr	x1, [x2, #8]
	str	x1, [x0]
	str	x0, [x2, #8]
	ldr	w3, [x2]
	sub	w3, w3, #1
	str	w3, [x2]
at_give:
	cbz	x1, given
given:
	ret
// Here the register of the block is used again.
give_lost:
	ldr	x1, [x2, #8]
	str	x1, [x0]
	str	x0, [x2, #8]
	ldr	w0, [x2]
	sub	w0, w0, #1
	str	w0, [x2]
at_give_lost:
	cbz	x1, given
at_free:
	b	free

resize:
	mov	x19, x0
	mov	x3, x1
	and	x4, x19, #0xffffffffffffc000
	ldr	w0, [x4, #36]
	add	w0, w0, #1
	lsl	w22, w0, #4
	lsl	w0, w0, #4
	cmp	x3, x22
	b.hi	moved
	mov	w1, #FACTOR
	umull	x0, w0, w1
	cmp	x0, x3, lsl #2
at_resize:
	b.lo	kept
	mov	x22, x3
moved:
	mov	x0, x3
	bl	alloc_var
	mov	x20, x0
	cbz	x0, kept
	mov	x2, x22
	mov	x1, x19
	bl	copy_bytes
kept:
	ret
copy_bytes:
	ret

refill:
	ldr	x2, [x5]
	mov	w1, #1
	str	w1, [x2]
	cmp	w0, w3
at_pool:
	b.ne	fresh
	ldr	x0, [x2, #8]
	ldr	x1, [x0]
	str	x1, [x2, #8]
	ret
fresh:
	mov	w1, #1
at_pool_stored:
	str	w1, [x2]
joined:
	add	x1, x2, #64
	str	x1, [x2, #8]
	cbnz	w0, joined
	ret

new_reference:
	stp	x29, x30, [sp, #-32]!
	adrp	x1, 0x500000
	mov	x29, sp
	ldr	w1, [x1, #76]
	mov	x19, x0
at_function:
	cbnz	w1, traced
alive:
	mov	x0, #1
	str	x0, [x19]
	ret
traced:
	bl	tracer
	b	alive
tracer:
	ret

// The flag in its structure, whose address is in a register since long before.
object:
	adrp	x21, 0x500000
	add	x21, x21, #72
	bl	give
	ldr	w3, [x21, #4]
	mov	x20, x0
at_object:
	cbnz	w3, object_traced
	ret
object_traced:
	mov	x0, x20
	bl	tracer
	ret

// The same, of a register that never held that address.
no_object:
	ldr	w3, [x22, #4]
	mov	x20, x0
	cbnz	w3, object_traced
	ret

// The flag is read into no register.
no_register:
	adrp	x21, 0x500000
	ldr	wzr, [x21, #76]
	cbnz	wzr, object_traced
	ret

// An object of a type without a free list.
new_object:
	adrp	x1, 0x501000
	add	x1, x1, #0x80
	mov	x20, x0
	str	x1, [x20, #8]
	adrp	x2, 0x500000
	ldr	w3, [x2, #76]
	cbnz	w3, object_traced
	ret

stubs:
malloc:
	adrp	x16, 0x502000
	ldr	x17, [x16, #8]
	add	x16, x16, #8
	br	x17
free:
	bti	c
	adrp	x16, 0x502000
	ldr	x17, [x16, #16]
	add	x16, x16, #16
	br	x17
end:
