/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of x86-64 that are found as bytes, which may be a part of others. */
#include <string.h>

#include "abi/target.h"
#include "machine/value.h"
#include "machine/x86_look.h"

#define OPERAND sizeof(int32_t)
#define SHORT   8  /* bytes of the longest instruction that is looked for */
#define NEAR    40 /* bytes from the load of pool->freeblock to where it is stored */
/* bytes from loading the address of a structure to reading the flag in it */
#define READ_NEAR     96
#define STRUCTURE_MAX (1u << 20) /* size of the structure that holds the flag, at most */
#define FREEBLOCK     8
#define NEXTPOOL      16

static uint64_t relative(const struct inline_range *text, size_t operand)
{
	int32_t distance;

	memcpy(&distance, text->code + operand, sizeof(distance));
	return text->vaddr + operand + OPERAND + (uint64_t)(int64_t)distance;
}

static size_t jump_look(const struct inline_range *text, size_t i, struct machine_found *out)
{
	for (; i + 1 + OPERAND <= text->bytes; i++) {
		int is_branch;

		if (text->code[i] != 0xe9 && text->code[i] != 0x0f)
			continue;
		is_branch = text->code[i] == 0x0f;
		if (is_branch &&
		    ((text->code[i + 1] & 0xf0) != 0x80 || i + 2 + OPERAND > text->bytes))
			continue;
		out->vaddr = text->vaddr + i;
		out->target = relative(text, i + 1 + (size_t)is_branch);
		return i + 1;
	}
	return 0;
}

/*
 * The displacement of a REX.W mov with an 8-bit displacement or of a comparison with memory,
 * otherwise 0.
 */
static unsigned displacement(const uint8_t *bytes)
{
	unsigned mod = bytes[2] >> 6, base = bytes[2] & 7;

	if ((bytes[0] & 0xf8) != 0x48 || mod != 1 ||
	    (bytes[1] != 0x8b && bytes[1] != 0x39 && bytes[1] != 0x3b))
		return 0;
	return base == 4 ? bytes[4] : bytes[3];
}

/*
 * Does a store of that register through another follow soon? Most loads at offset 8 are of
 * something else.
 */
static int store_follows(const uint8_t *bytes, size_t count, unsigned reg)
{
	for (size_t i = 0; i + 3 <= count; i++)
		if ((bytes[i] & 0xf8) == 0x48 && bytes[i + 1] == 0x89 &&
		    (bytes[i + 2] >> 3 & 7) == (reg & 7) && (bytes[i] >> 2 & 1) == reg >> 3 &&
		    bytes[i + 2] >> 6 < 2)
			return 1;
	return 0;
}

static size_t pool_look(const struct inline_range *text, size_t i, struct machine_found *out)
{
	for (; i + SHORT <= text->bytes; i++) {
		const uint8_t *bytes = text->code + i;
		unsigned at, reg;
		size_t left = text->bytes - i;

		if ((bytes[0] & 0xf8) != 0x48)
			continue;
		at = displacement(bytes);
		reg = (bytes[0] >> 2 & 1) << 3 | (bytes[2] >> 3 & 7);
		if (at != NEXTPOOL && (at != FREEBLOCK || bytes[1] != 0x8b ||
				       !store_follows(bytes, left < NEAR ? left : NEAR, reg)))
			continue;
		out->vaddr = text->vaddr + i;
		out->is_next = at == NEXTPOOL;
		return i + 1;
	}
	return 0;
}

/* lea (r,r,2) */
static size_t triple_look(const struct inline_range *text, size_t i, struct machine_found *out)
{
	for (; i + SHORT <= text->bytes; i++) {
		const uint8_t *bytes = text->code + i;

		if ((bytes[0] & 0xf8) != 0x48 || bytes[1] != 0x8d || (bytes[2] & 7) != 4 ||
		    bytes[3] >> 6 != 1)
			continue;
		out->vaddr = text->vaddr + i;
		return i + 1;
	}
	return 0;
}

static size_t call_look(const struct inline_range *text, size_t i, struct machine_found *out)
{
	for (; i + 2 + OPERAND <= text->bytes; i++) {
		const uint8_t *bytes = text->code + i;
		int through_slot = bytes[0] == 0xff && (bytes[1] == 0x15 || bytes[1] == 0x25);

		if (!through_slot && bytes[0] != 0xe8 && bytes[0] != 0xe9)
			continue;
		out->vaddr = text->vaddr + i;
		out->through_slot = (uint8_t)through_slot;
		out->bytes = (uint8_t)(OPERAND + (through_slot ? 2 : 1));
		out->is_call = bytes[0] == 0xe8 || (through_slot && bytes[1] == 0x15);
		out->target = relative(text, i + (through_slot ? 2 : 1));
		return i + 1;
	}
	return 0;
}

/* Does a displacement of distance follow soon? */
static int displacement_follows(const struct inline_range *text, size_t index, uint64_t distance)
{
	size_t end = index + READ_NEAR < text->bytes ? index + READ_NEAR : text->bytes;
	uint32_t wide = (uint32_t)distance;

	if (!distance)
		return 1;
	for (; index < end; index++)
		if ((distance <= INT8_MAX && text->code[index] == distance) ||
		    (end - index >= sizeof(wide) &&
		     !memcmp(text->code + index, &wide, sizeof(wide))))
			return 1;
	return 0;
}

/*
 * Does the operand at that index refer to the flag: its address, the slot that leads to it, or the
 * structure that holds it? *before: bytes of the instruction before the operand, without a REX
 * prefix.
 */
static int is_operand(const struct inline_range *text, size_t index,
		      const struct inline_address *flag, unsigned *before)
{
	const uint8_t *code = text->code + index;
	uint64_t wanted = flag->slot ? flag->slot : (uint64_t)flag->offset, target;
	int32_t distance;
	int is_address;

	memcpy(&distance, code, sizeof(distance));
	*before = 2;
	target = text->vaddr + index + 4 + (uint64_t)(int64_t)distance;
	if ((code[-1] & 0xc7) == 5 &&
	    (code[-2] == 0x8b || code[-2] == 0x83)) /* of 0x83 an immediate follows */
		return target + (code[-2] == 0x83) == wanted;
	is_address = (code[-1] & 0xc7) == 5 && code[-2] == 0x8d;
	if (!is_address && code[-2] == 0xc7 && (code[-1] & 0xf8) == 0xc0) {
		is_address = 1;
		target = (uint64_t)(int64_t)distance;
	} else if (!is_address && (code[-1] & 0xf8) == 0xb8) {
		is_address = 1;
		target = (uint32_t)distance;
		*before = 1;
	}
	return is_address && !flag->slot && wanted - target < STRUCTURE_MAX &&
	       displacement_follows(text, index + sizeof(distance), wanted - target);
}

/* May the byte be the last one before an operand that is_operand() knows? Few are. */
static int may_precede(uint8_t byte)
{
	return (byte & 0xc7) == 5 || (byte & 0xf8) == 0xc0 || (byte & 0xf8) == 0xb8;
}

/* from: the offset of the operand, which is what is searched for. */
static size_t reader_look(const struct inline_range *text, size_t i,
			  const struct inline_address *flag, struct machine_found *out)
{
	for (i = i < 3 ? 3 : i; i + OPERAND <= text->bytes; i++) {
		unsigned before;

		if (!may_precede(text->code[i - 1]) || !is_operand(text, i, flag, &before))
			continue;
		out->vaddr = text->vaddr + i - before;
		out->prefixed = (text->code[i - before - 1] & 0xf0) == 0x40;
		return i + 1;
	}
	return 0;
}

size_t x86_look(enum machine_look what, const struct inline_range *text, size_t from,
		const struct inline_address *flag, struct machine_found *out)
{
	*out = (struct machine_found){.base = ABI_REG_COUNT};
	switch (what) {
	case MACHINE_JUMP:
		return jump_look(text, from, out);
	case MACHINE_POOL:
		return pool_look(text, from, out);
	case MACHINE_TRIPLE:
		return triple_look(text, from, out);
	case MACHINE_CALL:
		return call_look(text, from, out);
	case MACHINE_READER:
		return reader_look(text, from, flag, out);
	}
	return 0;
}

uint64_t x86_stub_slot(const uint8_t *code, size_t bytes, uint64_t vaddr)
{
	static const uint8_t landing[] = {0xf3, 0x0f, 0x1e, 0xfa}; /* endbr64 */
	struct inline_range stub = {code, vaddr, bytes};
	size_t at = 0;

	if (bytes >= sizeof(landing) && !memcmp(code, landing, sizeof(landing)))
		at += sizeof(landing);
	if (bytes - at >= 1 && code[at] == 0xf2)
		at++;
	if (bytes - at < 2 + OPERAND || code[at] != 0xff || code[at + 1] != 0x25)
		return 0;
	return relative(&stub, at + 2);
}
