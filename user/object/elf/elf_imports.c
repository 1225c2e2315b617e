/* SPDX-License-Identifier: Apache-2.0 */
#include "object/elf/elf_imports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/elf/elf_section.h"
#include "util/arch.h"
#include "util/array.h"
#include "util/error.h"
#include "util/sorted.h"

/*
 * The name of the symbol whose address the relocation stores in a slot; NULL: another kind of
 * relocation, or a corrupt one.
 */
static const char *import_name(const struct elf_symbols *dynsym, const GElf_Rela *relocation)
{
	uint64_t type = GELF_R_TYPE(relocation->r_info), index = GELF_R_SYM(relocation->r_info);
	GElf_Sym symbol;

	if ((type != ARCH_SLOT && type != ARCH_ADDRESS) || !dynsym->symbols || !index ||
	    index >= dynsym->count || !gelf_getsym(dynsym->symbols, (int)index, &symbol) ||
	    symbol.st_name >= dynsym->string_bytes)
		return NULL;
	return dynsym->strings + symbol.st_name;
}

static int section_take(struct elf_imports *imports, Elf_Data *data,
			const struct elf_symbols *dynsym)
{
	GElf_Rela relocation;
	int err = 0;

	for (int i = 0; data && !err && gelf_getrela(data, i, &relocation); i++) {
		const char *name = import_name(dynsym, &relocation);

		if (!name)
			continue;
		if (imports->count == ELF_IMPORTS_MAX)
			return error_set(-ENOEXEC, "more than %u names are imported",
					 ELF_IMPORTS_MAX);
		err = ARRAY_GROW(imports->by_slot, imports->capacity, imports->count);
		if (!err)
			imports->by_slot[imports->count++] =
				(struct elf_import){relocation.r_offset, name};
	}
	return err;
}

Elf_Data *elf_imports_relocations(Elf *elf, Elf_Scn **section, uint64_t *left)
{
	GElf_Shdr header;
	Elf_Data *data = NULL;

	while (!data && (*section = elf_section_by_type(elf, SHT_RELA, *section, &header))) {
		/*
		 * Relocations that the linker keeps for other tools (--emit-relocs) are not seen by
		 * the dynamic linker.
		 */
		if (!(header.sh_flags & SHF_ALLOC) || header.sh_size / sizeof(Elf64_Rela) > *left)
			continue;
		*left -= header.sh_size / sizeof(Elf64_Rela);
		data = elf_section_data(*section, &header);
	}
	return data;
}

static int compare_slots(const void *a, const void *b)
{
	const struct elf_import *x = a, *y = b;

	return CMP(x->slot, y->slot);
}

int elf_imports_load(struct elf_imports *imports, Elf *elf, const struct elf_symbols *dynsym)
{
	uint64_t left = ELF_RELOCATIONS_MAX;
	Elf_Scn *section = NULL;
	Elf_Data *data;
	int err = 0;

	while (!err && (data = elf_imports_relocations(elf, &section, &left)))
		err = section_take(imports, data, dynsym);
	if (!err)
		imports->by_name = malloc((imports->count + 1) * sizeof(*imports->by_name));
	if (err || !imports->by_name) {
		elf_imports_free(imports);
		return err ?: -ENOMEM;
	}
	if (imports->count)
		qsort(imports->by_slot, imports->count, sizeof(*imports->by_slot), compare_slots);
	for (size_t i = 0; i < imports->count; i++)
		imports->by_name[i] = elf_symbols_key(imports->by_slot[i].name, (uint32_t)i);
	err = elf_symbols_sort_keys(imports->by_name, imports->count);
	if (err)
		elf_imports_free(imports);
	return err;
}

void elf_imports_free(struct elf_imports *imports)
{
	free(imports->by_slot);
	free(imports->by_name);
	*imports = (struct elf_imports){0};
}

const char *elf_imports_at(const struct elf_imports *imports, uint64_t slot)
{
	const struct elf_import wanted = {.slot = slot}, *found = NULL;

	if (imports->count)
		found = bsearch(&wanted, imports->by_slot, imports->count, sizeof(wanted),
				compare_slots);
	return found ? found->name : NULL;
}

size_t elf_imports_find(const struct elf_imports *imports, const char *name, uint64_t *slots,
			size_t capacity)
{
	size_t at, end, count = 0;

	elf_symbols_find_keys(imports->by_name, imports->count, name, &at, &end);
	for (; at < end && count < capacity; at++) {
		const struct elf_import *import = &imports->by_slot[(uint32_t)imports->by_name[at]];

		if (!strcmp(import->name, name))
			slots[count++] = import->slot;
	}
	return count;
}
