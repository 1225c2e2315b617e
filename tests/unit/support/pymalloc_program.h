/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machine code for the analysis of inlined allocators, assembled from listings in
 * tests/unit/data/assembly. A listing begins at the label `begin` and ends at `end`; its code has
 * no relocations, so that it can be placed at any address.
 */
#pragma once

#include <string.h>
#include <unistd.h>

#include "abi/events.h"
#include "abi/target.h"
#include "assembly.h"
#include "object/insn/machine.h"
#include "probe/python/plan_inline.h"

#define TEXT         0x401000u
#define TEXT_SIZE    0x150u /* of pymalloc_program.s, without its stub */
#define STUB         0x401150u
#define PROGRAM_SIZE 0x15au

struct listing {
	struct elf_file *file; /* NULL: not assembled yet */
	uint8_t code[1024];
	size_t bytes;
	uint64_t address; /* of its beginning, in the process */
	uint64_t begin;   /* the same in the file */
};

static struct listing program; /* pymalloc_program.s; program_code() assembles it */

/* The address in the process of a label. */
static inline uint64_t at(const struct listing *listing, const char *label)
{
	struct elf_symbol symbol;

	if (elf_file_symbol(listing->file, label, &symbol))
		fail_msg("no label %s", label);
	return symbol.vaddr - listing->begin + listing->address;
}

/* Assembles the listing, unless that was done before. It is never freed. */
static inline void listing_open(struct listing *listing, const char *name, uint64_t address)
{
	uint64_t offset;

	if (listing->file)
		return;
	listing->file =
		assembly_open("-Wa,-Itests/unit/data/assembly", ".include \"%s.s\"\n", name);
	listing->address = 0;
	listing->begin = 0;
	listing->begin = at(listing, "begin");
	listing->bytes = at(listing, "end");
	listing->address = address;
	assert_true(listing->bytes <= sizeof(listing->code));
	assert_int_equal(elf_file_offset(listing->file, listing->begin, &offset), 0);
	assert_int_equal(
		pread(elf_file_fd(listing->file), listing->code, listing->bytes, (off_t)offset),
		listing->bytes);
}

/* PROGRAM_SIZE bytes. */
static inline const uint8_t *program_code(void)
{
	listing_open(&program, "pymalloc_program", TEXT);
	assert_int_equal(program.bytes, PROGRAM_SIZE);
	assert_int_equal(at(&program, "stub_malloc"), STUB);
	return program.code;
}

#define STARTS 9

/* The functions of the program. */
static inline const uint64_t *program_starts(void)
{
	static const char *const names[STARTS] = {"impl",      "refill", "alloc_const",
						  "alloc_var", "give",   "give_lost",
						  "large",     "tail",   "decoy"};
	static uint64_t starts[STARTS];

	program_code();
	for (size_t i = 0; i < STARTS; i++)
		starts[i] = at(&program, names[i]);
	return starts;
}

static inline struct inline_image image_of(const uint8_t *code)
{
	return (struct inline_image){
		.machine = &machine_x86,
		.text = {code, TEXT, TEXT_SIZE},
		.stubs = {{code + TEXT_SIZE, STUB, PROGRAM_SIZE - TEXT_SIZE}},
		.imports = {{0x403408, ABI_OP_MALLOC}, {0x403410, ABI_OP_FREE}},
		.import_count = 2,
		.starts = program_starts(),
		.start_count = STARTS,
	};
}

static inline const struct plan_site *site_at(const struct inline_sites *sites, uint64_t vaddr)
{
	for (size_t i = 0; i < sites->count; i++)
		if (sites->sites[i].vaddr == vaddr)
			return &sites->sites[i];
	fail_msg("no site at 0x%llx", (unsigned long long)vaddr);
	return NULL;
}

#define NONE ABI_REG_COUNT
