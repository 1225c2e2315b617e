/* SPDX-License-Identifier: Apache-2.0 */
#include "object/perfmap/jit_elf.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "object/elf/elf_section.h"
#include "object/elf/elf_symbols.h"
#include "util/cleanup.h"
#include "util/error.h"

/* The address of a symbol; 0: its section is not loaded. */
static uint64_t symbol_address(Elf *elf, const GElf_Sym *symbol, int relocatable)
{
	GElf_Shdr header;

	if (!relocatable)
		return symbol->st_value;
	if (symbol->st_shndx >= SHN_LORESERVE)
		return 0;
	Elf_Scn *section = elf_getscn(elf, symbol->st_shndx);
	if (!section || !gelf_getshdr(section, &header) || !header.sh_addr)
		return 0;
	return header.sh_addr + symbol->st_value;
}

static int table_read(Elf *elf, uint32_t type, int relocatable, perfmap_text_fn entry,
		      void *context)
{
	_cleanup_(elf_symbols_free) struct elf_symbols table = {0};
	int err = elf_symbols_load(&table, elf, type, ELF_SYMBOLS_HERE);
	/* Names may overlap in the table; those of real compilers hardly do. */
	uint64_t budget = 2 * table.string_bytes;

	for (uint32_t i = 0; !err && i < table.count; i++) {
		GElf_Sym symbol;

		if (!gelf_getsym(table.symbols, (int)i, &symbol) || symbol.st_shndx == SHN_UNDEF ||
		    GELF_ST_TYPE(symbol.st_info) != STT_FUNC ||
		    symbol.st_name >= table.string_bytes || !symbol.st_size)
			continue;
		uint64_t address = symbol_address(elf, &symbol, relocatable);
		const char *name = table.strings + symbol.st_name;
		size_t bytes = strnlen(name, PERFMAP_NAME_MAX);
		if (!address || !bytes || address + symbol.st_size < address)
			continue;
		if (bytes > budget)
			err = error_set(-ENOEXEC, "corrupt ELF image: names overlap");
		else
			err = entry(context, address, symbol.st_size, name, bytes);
		budget -= bytes;
	}
	return err;
}

/*
 * Copies the image to a memfd: libelf reads it as a file, like all others, because those checks are
 * the fuzzed ones.
 */
static int copy_make(const void *image, size_t bytes, int *relocatable)
{
	const uint16_t type = ET_DYN;
	Elf64_Ehdr header;

	if (bytes < sizeof(header) || bytes > JIT_ELF_MAX)
		return error_set(-ENOEXEC, "an ELF image of %zu bytes", bytes);
	memcpy(&header, image, sizeof(header));
	*relocatable = header.e_type == ET_REL;
	int fd = memfd_create("jit image", MFD_CLOEXEC);
	if (fd < 0)
		return error_errno();
	/*
	 * An object file is marked as a library to pass those checks: only sections and symbols are
	 * read.
	 */
	if (write(fd, image, bytes) != (ssize_t)bytes ||
	    (*relocatable && pwrite(fd, &type, sizeof(type), offsetof(Elf64_Ehdr, e_type)) !=
				     (ssize_t)sizeof(type))) {
		int err = errno ? error_errno() : -EIO;

		close(fd);
		return err;
	}
	return fd;
}

int jit_elf_read(const void *image, size_t bytes, perfmap_text_fn entry, void *context)
{
	uint64_t file_bytes;
	int relocatable = 0, err;
	Elf *elf;
	_cleanup_close_ int fd = copy_make(image, bytes, &relocatable);

	if (fd < 0)
		return fd;
	err = elf_section_begin(&elf, fd, &file_bytes);
	if (!err) {
		err = table_read(elf, SHT_SYMTAB, relocatable, entry, context);
		if (err == -ENOENT)
			err = table_read(elf, SHT_DYNSYM, relocatable, entry, context);
		if (err == -ENOENT)
			err = error_set(-ENOEXEC, "an ELF image without symbols");
		elf_end(elf);
	}
	return err;
}
