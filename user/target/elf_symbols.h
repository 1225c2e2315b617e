/* SPDX-License-Identifier: Apache-2.0 */
/* One symbol table of an ELF file, with indexes by name and by address that are built at first use. */
#ifndef TRACER_TARGET_ELF_SYMBOLS_H
#define TRACER_TARGET_ELF_SYMBOLS_H

#include <gelf.h>
#include <stddef.h>
#include <stdint.h>

struct elf_symbols_reach {
	uint64_t start;
	uint64_t reach; /* the furthest end of this function and of all that start before it */
	uint32_t index;
	uint32_t rank; /* of several that start together the one with the highest is found */
};

/* Zero-initialise. Borrows from the Elf. */
struct elf_symbols {
	Elf_Data *symbols;
	Elf_Data *versions; /* of .dynsym, may be NULL */
	const char *strings;
	size_t string_bytes;
	uint32_t count;

	uint64_t *by_name; /* hash of the name << 32 | index, sorted */
	uint32_t name_count;
	struct elf_symbols_reach *by_address; /* functions, sorted by start */
	uint32_t address_count;
};

/* type: SHT_DYNSYM or SHT_SYMTAB. 0; -ENOENT no such table; -ENOEXEC a corrupt one (error_set). */
int elf_symbols_load(struct elf_symbols *table, Elf *elf, uint32_t type);
void elf_symbols_free(struct elf_symbols *table);

/*
 * A defined symbol of that name. Of several a global one is preferred to a local one, and the default version
 * to a hidden one. *found is borrowed from the Elf. 0; -ENOENT; -ENOMEM.
 */
int elf_symbols_find(struct elf_symbols *table, const char *name, GElf_Sym *symbol, const char **found);
/*
 * The function with the highest start that covers vaddr or starts there; of aliases a global one, and of those the one with
 * the fewest underscores before it (malloc, not __libc_malloc). 0; -ENOENT; -ENOMEM.
 */
int elf_symbols_find_at(struct elf_symbols *table, uint64_t vaddr, GElf_Sym *symbol, const char **found);

#endif
