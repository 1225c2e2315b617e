/* SPDX-License-Identifier: Apache-2.0 */
/* Words of A64 that the search for inlined allocators begins with. */
#include "machine/arm64.h"
#include "machine/machine.h"
#include "machine/value.h"

#define NEAR      10 /* words from the load of pool->freeblock to where it is stored */
#define TEST_NEAR 16 /* words from the load of a flag to the branch that tests it */
#define STUB      5  /* words of a stub, at most */
#define STRUCTURE 16 /* bytes from where a small structure begins to the flag in it */
#define FREEBLOCK 8
#define NEXTPOOL  16
#define PAGE      0xfffull /* of adrp, whatever the kernel's pages are */

/* ldr of a register of 32 or 64 bits at an unsigned offset */
#define IS_LOAD(word)     a64_is(word, 0xbfc00000, 0xb9400000)
#define IS_LOAD_64(word)  a64_is(word, 0xffc00000, 0xf9400000)
#define IS_STORE_64(word) a64_is(word, 0xffc00000, 0xf9000000)

static uint64_t load_offset(uint32_t word)
{
	return (uint64_t)a64_bits(word, 10, 12) << a64_bits(word, 30, 2);
}

/* Does a store of that register through another follow soon? */
static int store_follows(const uint8_t *code, size_t bytes, uint32_t reg)
{
	for (size_t i = 0; i < NEAR && (i + 1) * A64_BYTES <= bytes; i++) {
		uint32_t word = a64_word(code + i * A64_BYTES);

		if (IS_STORE_64(word) && a64_bits(word, 0, 5) == reg)
			return 1;
	}
	return 0;
}

static int is_pool(const uint8_t *code, size_t bytes, struct machine_found *out)
{
	uint32_t word = a64_word(code);

	if (!IS_LOAD_64(word))
		return 0;
	out->is_next = load_offset(word) == NEXTPOOL;
	return out->is_next ||
	       (load_offset(word) == FREEBLOCK &&
		store_follows(code + A64_BYTES, bytes - A64_BYTES, a64_bits(word, 0, 5)));
}

/* mul, umull, and add of a register and twice itself */
static int is_triple(uint32_t word)
{
	return a64_is(word, 0x7fe0fc00, 0x1b007c00) || a64_is(word, 0xffe0fc00, 0x9ba07c00) ||
	       (a64_is(word, 0x7fe0fc00, 0x0b000400) &&
		a64_bits(word, 5, 5) == a64_bits(word, 16, 5));
}

/* Is that register soon compared with 0 by a branch? */
static int test_follows(const uint8_t *code, size_t bytes, uint32_t reg)
{
	for (size_t i = 0; i < TEST_NEAR && (i + 1) * A64_BYTES <= bytes; i++) {
		uint32_t word = a64_word(code + i * A64_BYTES);

		if (A64_IS_CB(word) && a64_bits(word, 0, 5) == reg)
			return 1;
	}
	return 0;
}

/*
 * Where a flag is read the address of its page, of the interpreter's state or of a structure that
 * begins shortly before it is in a register, often since long before.
 */
static int is_reader(const uint8_t *code, size_t bytes, const struct inline_address *flag,
		     struct machine_found *out)
{
	uint32_t word = a64_word(code);
	uint64_t offset = load_offset(word);

	if (!IS_LOAD(word) ||
	    (offset != (uint64_t)flag->displacement &&
	     (flag->slot || (offset >= STRUCTURE && offset != ((uint64_t)flag->offset & PAGE)))) ||
	    !test_follows(code + A64_BYTES, bytes - A64_BYTES, a64_bits(word, 0, 5)))
		return 0;
	out->base = (uint8_t)a64_bits(word, 5, 5);
	out->value = (int64_t)offset;
	return 1;
}

static int is_found(enum machine_look what, const uint8_t *code, size_t bytes,
		    const struct inline_address *flag, struct machine_found *out)
{
	uint32_t word = a64_word(code);

	switch (what) {
	case MACHINE_JUMP:
		return !A64_IS_BL(word) && a64_target(word, out->vaddr, &out->target);
	case MACHINE_POOL:
		return is_pool(code, bytes, out);
	case MACHINE_TRIPLE:
		return is_triple(word);
	case MACHINE_CALL:
		out->is_call = A64_IS_BL(word);
		return (A64_IS_B(word) || A64_IS_BL(word)) &&
		       a64_target(word, out->vaddr, &out->target);
	case MACHINE_READER:
		return is_reader(code, bytes, flag, out);
	}
	return 0;
}

size_t arm64_look(enum machine_look what, const struct inline_range *text, size_t from,
		  const struct inline_address *flag, struct machine_found *out)
{
	size_t before = (text->vaddr + from) % A64_BYTES;

	for (size_t i = before ? from + A64_BYTES - before : from; i + A64_BYTES <= text->bytes;
	     i += A64_BYTES) {
		*out = (struct machine_found){
			.vaddr = text->vaddr + i, .bytes = A64_BYTES, .base = ABI_REG_COUNT};
		if (is_found(what, text->code + i, text->bytes - i, flag, out))
			return i + A64_BYTES;
	}
	return 0;
}

/* adrp x16, page; ldr x17, [x16, offset]; …; br x17; perhaps after a bti */
uint64_t arm64_stub_slot(const uint8_t *code, size_t bytes, uint64_t vaddr)
{
	uint64_t page = 0, slot = 0;

	for (size_t i = 0; i < STUB && (i + 1) * A64_BYTES <= bytes; i++) {
		uint32_t word = a64_word(code + i * A64_BYTES);

		if (a64_is(word, 0x9f00001f, 0x90000010))
			page = ((vaddr + i * A64_BYTES) & ~PAGE) +
			       ((uint64_t)(a64_signed(word, 5, 19) * 4 + a64_bits(word, 29, 2))
				<< 12);
		else if (page && a64_is(word, 0xffc003ff, 0xf9400211))
			slot = page + load_offset(word);
		else if (a64_is(word, 0xffffffff, 0xd61f0220))
			return slot;
	}
	return 0;
}
