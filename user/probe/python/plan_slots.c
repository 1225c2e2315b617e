/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Objects/obmalloc.c). A slot is {ctx, malloc, calloc, realloc, free}, in initialized data.
 * Each public function ends with a call or jump through its word of the slot, of which the compiler
 * knows the address, or the address relative to a structure that the GOT refers to. So its code,
 * executed in order without regard to branches, reads one word of data that holds the address of
 * code, and the words that the four functions read follow each other.
 */
#include "probe/python/plan_slots.h"

#include <errno.h>
#include <stdio.h>

#include "object/insn/insn.h"
#include "object/insn/machine.h"
#include "object/insn/value.h"
#include "probe/python/plan_symbol.h"

#define CODE_BYTES   512u /* of a public function that are inspected */
#define SECTIONS_MAX 256u

static bool is_code(struct elf_file *file, uint64_t vaddr)
{
	struct elf_section section;

	for (size_t i = 0; i < SECTIONS_MAX && !elf_file_loaded_section(file, i, &section); i++)
		if (section.code && vaddr - section.vaddr < section.size)
			return 1;
	return 0;
}

/* If the instruction reads a word that holds the address of code: 1, the word and what it holds. */
static int reads_function(struct elf_file *file, const struct inline_state *state,
			  const struct inline_insn *insn, uint64_t *word, uint64_t *function)
{
	struct inline_address address;
	uint64_t base = 0;

	if (!inline_state_reads(state, insn, &address) ||
	    (address.slot && elf_file_pointer(file, address.slot, &base)))
		return 0;
	*word = base + (uint64_t)address.offset;
	return !elf_file_pointer(file, *word, function) && is_code(file, *function);
}

/* The word of the slot that the public function calls through, and the function that it holds. */
static int word_find(struct elf_file *file, struct inline_decoder *decoder, const char *name,
		     uint64_t *word, uint64_t *function)
{
	uint8_t code[CODE_BYTES];
	struct inline_state state;
	struct inline_insn insn;
	struct elf_symbol symbol;
	size_t at = 0, bytes;

	if (elf_file_symbol(file, name, &symbol) || !symbol.function)
		return -ENOENT;
	bytes = symbol.size && symbol.size < CODE_BYTES ? symbol.size : CODE_BYTES;
	int got = elf_file_read(file, symbol.vaddr, code, bytes);
	bytes = got > 0 ? (size_t)got : 0;
	inline_state_init(&state);
	while (at < bytes) {
		size_t length =
			inline_decode(decoder, code + at, bytes - at, symbol.vaddr + at, &insn);

		if (!length)
			break;
		if (reads_function(file, &state, &insn, word, function))
			return 0;
		inline_state_step(&state, &insn);
		at += length;
	}
	return -ENOENT;
}

int plan_slots_find(struct elf_file *file, const char *public, uint64_t vaddrs[PLAN_FUNCTIONS])
{
	struct inline_decoder decoder = {0};
	uint64_t first = 0, word;
	int err = inline_decoder_open(&decoder, machine_own());

	for (size_t i = 0; i < PLAN_FUNCTIONS && !err; i++) {
		char name[PLAN_NAME_SIZE];

		snprintf(name, sizeof(name), "%s%s", public, plan_function_names[i]);
		err = word_find(file, &decoder, name, &word, &vaddrs[i]);
		if (!i)
			first = word;
		if (!err && word != first + i * sizeof(word))
			err = -ENOENT;
	}
	inline_decoder_close(&decoder);
	return err;
}
