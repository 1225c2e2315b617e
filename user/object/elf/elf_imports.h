/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GOT slots of one ELF file that the dynamic linker fills with addresses of named symbols, by
 * slot and by name.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "object/elf/elf_symbols.h"

/* relocations of all kinds per pass; a section that exceeds the rest is skipped */
#define ELF_RELOCATIONS_MAX (4u << 20)
#define ELF_IMPORTS_MAX     (1u << 20)

struct elf_import {
	uint64_t slot;    /* vaddr */
	const char *name; /* borrowed from the Elf */
};

/* Zero-initialise. */
struct elf_imports {
	struct elf_import *by_slot; /* sorted */
	size_t count, capacity;
	uint64_t *by_name; /* hash of the name << 32 | index, sorted */
};

/*
 * Content of the next section of relocations that the dynamic linker applies. *section and *left
 * start as NULL and ELF_RELOCATIONS_MAX. NULL: no more sections.
 */
Elf_Data *elf_imports_relocations(Elf *elf, Elf_Scn **section, uint64_t *left);

/*
 * Loads ARCH_SLOT and ARCH_ADDRESS (util/arch.h) of all sections; dynsym must be loaded. 0;
 * -ENOEXEC: too many (error_set); -ENOMEM.
 */
int elf_imports_load(struct elf_imports *imports, Elf *elf, const struct elf_symbols *dynsym);
void elf_imports_free(struct elf_imports *imports);
/* The name that is imported into a slot; NULL: none. */
const char *elf_imports_at(const struct elf_imports *imports, uint64_t slot);
/* The slots that import a name. Returns their number, at most capacity. */
size_t elf_imports_find(const struct elf_imports *imports, const char *name, uint64_t *slots,
			size_t capacity);
