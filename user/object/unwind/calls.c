/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes need no attention: the search begins at every byte, so it also begins after them. */
#include "object/unwind/calls.h"

#include <stdbool.h>
#include <string.h>

#define CALL          0xe8 /* rel32 */
#define CALL_BYTES    5
#define INDIRECT      0xff /* with /2 in the ModRM byte */
#define SYSCALL_FIRST 0x0f
#define SYSCALL_LAST  0x05

#define INSN_BYTES_ARM64 4u

static bool is_code(const struct unwind_codes *codes, uint64_t vaddr)
{
	for (size_t i = 0; i < codes->count; i++)
		if (vaddr - codes->parts[i].vaddr < codes->parts[i].size)
			return 1;
	return 0;
}

/* Bytes of an indirect call: opcode, ModRM, SIB, displacement. */
static size_t indirect_bytes(uint8_t modrm)
{
	unsigned mod = modrm >> 6, rm = modrm & 7, sib = mod != 3 && rm == 4;

	/* without a mod, rm 5 is rip + 32 bits; a SIB byte may ask for 32 bits, too */
	return 2 + sib + (mod == 1 ? 1 : mod == 2 || (!mod && rm == 5) ? 4 : 0);
}

/* Bytes of the call that seems to begin at code, of which left bytes are there; 0: none. */
static size_t call_bytes(const struct unwind_codes *codes, const uint8_t *code, size_t left,
			 uint64_t vaddr)
{
	int32_t distance;

	switch (code[0]) {
	case CALL:
		if (left < CALL_BYTES)
			return 0;
		memcpy(&distance, code + 1, sizeof(distance));
		return is_code(codes, vaddr + CALL_BYTES + (uint64_t)(int64_t)distance) ? CALL_BYTES
											: 0;
	case INDIRECT:
		return left >= 2 && (code[1] & 0x38) == 0x10 ? indirect_bytes(code[1]) : 0;
	case SYSCALL_FIRST:
		return left >= 2 && code[1] == SYSCALL_LAST ? 2 : 0;
	default:
		return 0;
	}
}

/* arm64's instructions have four bytes: bl, blr, svc. */
static bool is_call_arm64(const uint8_t *code)
{
	uint32_t word;

	memcpy(&word, code, sizeof(word));
	return (word & 0xfc000000) == 0x94000000 || (word & 0xfefff000) == 0xd63f0000 ||
	       (word & 0xffe0001f) == 0xd4000001;
}

static int calls_within_x86(const struct unwind_codes *codes, const uint8_t *code, size_t size,
			    uint64_t start)
{
	/* Most bytes begin no call: one look-up for each. */
	static const uint8_t begins[256] = {[CALL] = 1, [INDIRECT] = 1, [SYSCALL_FIRST] = 1};

	for (size_t at = 0; at + 1 < size; at++) {
		size_t bytes =
			begins[code[at]] ? call_bytes(codes, code + at, size - at, start + at) : 0;

		if (bytes && bytes <= size - at)
			return 1;
	}
	return 0;
}

static int calls_within_arm64(const uint8_t *code, size_t size, uint64_t start)
{
	for (size_t at = -start % INSN_BYTES_ARM64; at + INSN_BYTES_ARM64 <= size;
	     at += INSN_BYTES_ARM64)
		if (is_call_arm64(code + at))
			return 1;
	return 0;
}

int unwind_calls_within(const struct unwind_codes *codes, const struct unwind_code *part,
			uint64_t start, uint64_t end)
{
	const uint8_t *code = part->bytes + (start - part->vaddr);

	return codes->is_arm64 ? calls_within_arm64(code, end - start, start)
			       : calls_within_x86(codes, code, end - start, start);
}
