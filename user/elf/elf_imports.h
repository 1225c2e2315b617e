/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GOT slots of one ELF file that the dynamic linker fills with addresses of named symbols, by
 * slot and by name.
 */
#ifndef TRACER_ELF_ELF_IMPORTS_H
#define TRACER_ELF_ELF_IMPORTS_H

#include <stddef.h>
#include <stdint.h>

#include "elf/elf_symbols.h"

/* of all kinds, in one look; a section that is larger is passed over */
#define ELF_RELOCATIONS_MAX (4u << 20)
#define ELF_IMPORTS_MAX     (1u << 20)

struct elf_import {
	uint64_t slot;    /* vaddr */
	const char *name; /* borrowed from the Elf */
};

/* Zero-initialise. */
struct elf_imports {
	struct elf_import *by_slot; /* sorted */
	size_t count, room;
	uint64_t *by_name; /* hash of the name << 32 | index, sorted */
};

/*
 * The content of the next section of relocations that the dynamic linker carries out; *section and
 * *left begin as NULL and ELF_RELOCATIONS_MAX. NULL: there is none any more.
 */
Elf_Data *elf_imports_relocations(Elf *elf, Elf_Scn **section, uint64_t *left);

/*
 * R_X86_64_JUMP_SLOT and R_X86_64_GLOB_DAT of all sections; dynsym was loaded. 0; -ENOEXEC too many
 * (error_set); -ENOMEM.
 */
int elf_imports_load(struct elf_imports *imports, Elf *elf, const struct elf_symbols *dynsym);
void elf_imports_free(struct elf_imports *imports);
/* The name at a slot; NULL. */
const char *elf_imports_at(const struct elf_imports *imports, uint64_t slot);
/* The slots of a name; their number, at most room. */
size_t elf_imports_find(const struct elf_imports *imports, const char *name, uint64_t *slots,
			size_t room);

#endif
