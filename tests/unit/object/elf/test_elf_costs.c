/* SPDX-License-Identifier: Apache-2.0 */
/* ELF files that are cheap to create and expensive to read; relocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_images.h"
#include "object/elf/elf_file.h"
#include "object/elf/elf_imports.h"

/* Sections that all cover the same bytes, and more segments than a program has. */
static void what_costs_nothing_is_refused(void **state)
{
	struct image *image = *state;
	Elf64_Shdr *sections = (Elf64_Shdr *)(image->bytes + image->header->e_shoff);
	struct elf_file *file;
	uint16_t segments = image->header->e_phnum;
	unsigned notes = 0;

	image->header->e_phnum = 1025;
	assert_refused(image);
	image->header->e_phnum = segments;
	assert_int_equal(try_open(image, &file), 0);
	elf_file_close(file);
	for (unsigned i = 1; i < image->header->e_shnum; i++)
		if (sections[i].sh_type == SHT_PROGBITS && ++notes) {
			sections[i].sh_type = SHT_NOTE;
			sections[i].sh_offset = 0;
			sections[i].sh_size = image->size;
		}
	assert_true(notes > 8);
	assert_refused(image);
}

/* Puts a symbol table with these symbols at the end of the file, in place of its own table. */
static void symtab_replace(struct image *image, const Elf64_Sym *symbols, size_t count)
{
	Elf64_Shdr *symtab = image_section(image, SHT_SYMTAB);
	size_t bytes = count * sizeof(*symbols);

	assert_int_equal(pwrite(image->fd, symbols, bytes, (off_t)image->size), bytes);
	symtab->sh_offset = image->size;
	symtab->sh_size = bytes;
}

/*
 * One function precedes a million functions that begin later and end before the queried address. A
 * look at each of them would take hours.
 */
static void many_symbols_are_quick_to_ask(void **state)
{
	enum { COUNT = 1000000, START = 1 << 30 };
	struct image *image = *state;
	Elf64_Shdr *symtab = image_section(image, SHT_SYMTAB);
	Elf64_Sym *symbols = calloc(COUNT, sizeof(*symbols));
	Elf64_Sym function = {0};
	struct elf_symbol symbol;
	struct elf_file *file;

	alarm(60);
	for (size_t i = 0; i < symtab->sh_size / sizeof(function) && !function.st_size; i++) {
		memcpy(&function, image->bytes + symtab->sh_offset + i * sizeof(function),
		       sizeof(function));
		if (ELF64_ST_TYPE(function.st_info) != STT_FUNC)
			function.st_size = 0;
	}
	assert_true(function.st_size > 0);
	for (size_t i = 0; i < COUNT; i++) {
		symbols[i] = function;
		symbols[i].st_value = i ? START + i : START;
		symbols[i].st_size = i ? 1 : 4 * COUNT;
	}
	symtab_replace(image, symbols, COUNT);
	assert_int_equal(try_open(image, &file), 0);
	for (uint64_t i = 0; i < COUNT; i++) {
		assert_int_equal(elf_file_symbol_at(file, START + 2 * COUNT + i, &symbol), 0);
		assert_int_equal(symbol.size, 4 * COUNT);
	}
	assert_int_equal(elf_file_symbol_at(file, START + 5, &symbol), 0);
	assert_int_equal(symbol.size, 1);
	alarm(0);
	elf_file_close(file);
	free(symbols);
}

/* The slot of the first relocation that stores an imported function's address. */
static uint64_t import_slot(const struct image *image, const Elf64_Shdr *section)
{
	const Elf64_Rela *relocation = (const Elf64_Rela *)(image->bytes + section->sh_offset),
			 *end;

	for (end = relocation + section->sh_size / sizeof(*relocation); relocation < end;
	     relocation++)
		if (ELF64_R_TYPE(relocation->r_info) == R_X86_64_JUMP_SLOT ||
		    ELF64_R_TYPE(relocation->r_info) == R_X86_64_GLOB_DAT)
			return relocation->r_offset;
	return 0;
}

/* Queries a slot: its name, and whether what it points to is in the file. */
static int import_is_known(const struct image *image, uint64_t slot)
{
	struct elf_file *file;
	const char *name;
	uint64_t value;
	int known;

	assert_int_equal(try_open(image, &file), 0);
	known = !elf_file_import_at(file, slot, &name);
	/*
	 * An imported function is in another file; without its relocation the slot's bytes are
	 * taken as they are.
	 */
	assert_int_equal(elf_file_pointer(file, slot, &value) == -ENOENT, known);
	elf_file_close(file);
	return known;
}

static void relocations_that_nobody_carries_out_are_none(void **state)
{
	struct image *image = *state;
	Elf64_Shdr *sections = (Elf64_Shdr *)(image->bytes + image->header->e_shoff),
		   *section = NULL;
	uint64_t slot = 0, before;

	for (unsigned i = 1; i < image->header->e_shnum && !slot; i++) {
		section = &sections[i];
		slot = section->sh_type == SHT_RELA ? import_slot(image, section) : 0;
	}
	assert_true(slot);
	assert_true(import_is_known(image, slot));
	section->sh_flags ^= SHF_ALLOC;
	assert_false(import_is_known(image, slot));
	section->sh_flags ^= SHF_ALLOC;
	before = section->sh_size;
	section->sh_size = (ELF_RELOCATIONS_MAX + 1ull) * sizeof(Elf64_Rela);
	assert_int_equal(
		posix_fallocate(image->fd, 0, (off_t)(section->sh_offset + section->sh_size)), 0);
	assert_false(import_is_known(image, slot));
	section->sh_size = before;
	assert_true(import_is_known(image, slot));
	assert_int_equal(ftruncate(image->fd, (off_t)image->size), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_image(relocations_that_nobody_carries_out_are_none),
		with_image(what_costs_nothing_is_refused),
		with_image(many_symbols_are_quick_to_ask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
