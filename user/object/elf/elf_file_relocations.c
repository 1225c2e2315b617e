/* SPDX-License-Identifier: Apache-2.0 */
/* What the dynamic linker stores in the file's data: TLS module ids, imports, pointers. */
#include <errno.h>

#include "object/elf/elf_file_state.h"
#include "util/arch.h"

/*
 * Symbol 0 stands for the file itself. Any other symbol must be defined in it: otherwise the slot
 * may refer to another file.
 */
static int names_own_block(const struct elf_symbols *dynsym, uint64_t index)
{
	GElf_Sym symbol;

	if (!index)
		return 1;
	return dynsym->symbols && index < dynsym->count &&
	       gelf_getsym(dynsym->symbols, (int)index, &symbol) && symbol.st_shndx != SHN_UNDEF;
}

int elf_file_dtpmod_slot(struct elf_file *file, uint64_t *vaddr)
{
	uint64_t left = ELF_RELOCATIONS_MAX;
	Elf_Scn *section = NULL;
	GElf_Rela relocation;
	Elf_Data *data;

	if (!elf_file_find_segment(file, PT_TLS))
		return -ENOENT;
	elf_file_load_table(file, ELF_FROM_DYNSYM);
	while ((data = elf_imports_relocations(file->elf, &section, &left))) {
		for (int i = 0; gelf_getrela(data, i, &relocation); i++) {
			if (GELF_R_TYPE(relocation.r_info) != ARCH_MODULE ||
			    !names_own_block(&file->tables[ELF_FROM_DYNSYM],
					     GELF_R_SYM(relocation.r_info)))
				continue;
			*vaddr = relocation.r_offset;
			return 0;
		}
	}
	return -ENOENT;
}

/* Loads all imports, once. 0; -ENOEXEC; -ENOMEM. */
static int load_imports(struct elf_file *file)
{
	if (file->imports_err > 0) {
		elf_file_load_table(file, ELF_FROM_DYNSYM);
		file->imports_err =
			elf_imports_load(&file->imports, file->elf, &file->tables[ELF_FROM_DYNSYM]);
	}
	return file->imports_err;
}

size_t elf_file_import_slots(struct elf_file *file, const char *name, uint64_t *vaddrs,
			     size_t capacity)
{
	return load_imports(file) ? 0 : elf_imports_find(&file->imports, name, vaddrs, capacity);
}

int elf_file_import_at(struct elf_file *file, uint64_t vaddr, const char **name)
{
	const char *found = load_imports(file) ? NULL : elf_imports_at(&file->imports, vaddr);

	if (!found)
		return -ENOENT;
	*name = found;
	return 0;
}

/* The value that the relocation stores. */
static int relocation_value(struct elf_file *file, const GElf_Rela *relocation, uint64_t *value)
{
	const struct elf_symbols *dynsym = &file->tables[ELF_FROM_DYNSYM];
	uint64_t type = GELF_R_TYPE(relocation->r_info), index = GELF_R_SYM(relocation->r_info);
	GElf_Sym symbol = {.st_value = 0};

	if (type != ARCH_RELATIVE && (!index || !names_own_block(dynsym, index) ||
				      !gelf_getsym(dynsym->symbols, (int)index, &symbol)))
		return -ENOENT;
	*value = symbol.st_value + (uint64_t)relocation->r_addend;
	return 0;
}

int elf_file_pointer(struct elf_file *file, uint64_t vaddr, uint64_t *value)
{
	uint64_t left = ELF_RELOCATIONS_MAX;
	Elf_Scn *section = NULL;
	GElf_Rela relocation;
	Elf_Data *data;

	elf_file_load_table(file, ELF_FROM_DYNSYM);
	while ((data = elf_imports_relocations(file->elf, &section, &left)))
		for (int i = 0; gelf_getrela(data, i, &relocation); i++)
			if (relocation.r_offset == vaddr)
				return relocation_value(file, &relocation, value);
	return elf_file_read(file, vaddr, value, sizeof(*value)) == (int)sizeof(*value) ? 0
											: -ENOENT;
}
