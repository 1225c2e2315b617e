/* SPDX-License-Identifier: Apache-2.0 */
/* One symbol table of an ELF file. Its indexes by name and by address are built at first use. */
#pragma once

#include <gelf.h>
#include <stddef.h>
#include <stdint.h>

#include "util/spans.h"

/* symbols in all tables of a file, for a process that does nothing else */
#define ELF_SYMBOLS_MAX   (4u << 20)
#define ELF_SYMBOLS_HERE  (1u << 20) /* the same for a process that has other work */
#define ELF_NAMESAKES_MAX 1024u

/* Zero-initialise. Borrows from the Elf. */
struct elf_symbols {
	Elf_Data *symbols;
	Elf_Data *versions; /* of .dynsym, may be NULL */
	const char *strings;
	size_t string_bytes;
	uint32_t count;

	uint64_t *by_name; /* hash of the name << 32 | index, sorted */
	uint32_t name_count;
	struct spans by_address; /* functions; value: symbol index */
	int has_addresses;       /* by_address is built */
};

/*
 * Names are looked up in sorted keys; a key is the hash of a name and the index of what has the
 * name. elf_symbols_find_keys() sets [*from, *to) to the keys with the hash of name: the first
 * ELF_NAMESAKES_MAX at most, and possibly other names of the same hash among them.
 */
uint64_t elf_symbols_key(const char *name, uint32_t index);
/* Sorts keys whose indexes ascend. 0, -ENOMEM. */
int elf_symbols_sort_keys(uint64_t *keys, size_t count);
void elf_symbols_find_keys(const uint64_t *keys, size_t count, const char *name, size_t *from,
			   size_t *to);

/*
 * type: SHT_DYNSYM or SHT_SYMTAB. 0; -ENOENT: no such table; -ENOEXEC: a corrupt one, or more than
 * max symbols (error_set).
 */
int elf_symbols_load(struct elf_symbols *table, Elf *elf, uint32_t type, uint32_t max);
void elf_symbols_free(struct elf_symbols *table);

/*
 * A defined symbol of that name. A global symbol is preferred to a local one, and the default
 * version to a hidden one. *found is borrowed from the Elf. 0; -ENOENT; -ENOMEM.
 */
int elf_symbols_find(struct elf_symbols *table, const char *name, GElf_Sym *symbol,
		     const char **found);
/*
 * The function with the highest start that covers vaddr or starts there. Among aliases a global one
 * is preferred, then the one with the fewest leading underscores (malloc, not __libc_malloc). 0;
 * -ENOENT; -ENOMEM.
 */
int elf_symbols_find_at(struct elf_symbols *table, uint64_t vaddr, GElf_Sym *symbol,
			const char **found);
