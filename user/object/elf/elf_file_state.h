/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the elf_file*.c files. */
#pragma once

#include "object/elf/elf_debug.h"
#include "object/elf/elf_file.h"
#include "object/elf/elf_imports.h"
#include "object/elf/elf_section.h"
#include "object/elf/elf_symbols.h"

#define ELF_SOURCES 4 /* symbol sources, numbered as elf_symbol.source */

struct elf_file {
	unsigned int owners; /* in addition to the first */
	int fd;
	char *path;
	char *debug_root; /* NULL: the default directories of this machine */
	Elf *elf;
	uint64_t bytes;
	GElf_Ehdr header;
	GElf_Phdr *segments;
	size_t segment_count;
	char build_id[ELF_BUILD_ID_HEX_MAX];
	char *soname;
	int executable;

	uint32_t symbols_max; /* limit for all tables together */
	struct elf_symbols tables[ELF_SOURCES];
	int table_errs[ELF_SOURCES]; /* 1: not tried yet; 0: loaded; negative: the error */
	struct elf_imports imports;
	int imports_err; /* 1: not loaded yet; 0; -ENOEXEC, -ENOMEM */
	struct elf_debug debug;
	int debug_err; /* 1: not searched yet; 0: open; -ENOENT */

	struct elf_debug debugdata; /* unpacked .gnu_debugdata */
	int debugdata_err;          /* 1: not unpacked yet; 0: open; -ENOENT, -ENOEXEC, … */

	struct elf_debug alternate; /* common part (dwz) for the file with the DWARF */
	int dwarf_err;              /* 1: not searched yet; 0: found; -ENOENT */
	int dwarf_fd, alternate_fd; /* borrowed from fd, debug and alternate; -1: none */
};

/* The first segment of that type (PT_*); NULL: none. */
const GElf_Phdr *elf_file_find_segment(const struct elf_file *file, uint32_t type);
/* Loads the symbol table of a source if it is not loaded yet. 0; its error, which is kept. */
int elf_file_load_table(struct elf_file *file, int source);
/* Searches the debug file, once. 0: it is open; -ENOENT. */
int elf_file_load_debug(struct elf_file *file);
/* Unpacks .gnu_debugdata, once, in a process dedicated to it. 0: it is open; its error. */
int elf_file_load_debugdata(struct elf_file *file);
void elf_file_close_debug(struct elf_file *file);
