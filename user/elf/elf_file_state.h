/* SPDX-License-Identifier: Apache-2.0 */
/* What elf_file.c and elf_file_debug.c share; nobody else's business. */
#ifndef TRACER_ELF_ELF_FILE_STATE_H
#define TRACER_ELF_ELF_FILE_STATE_H

#include "elf/elf_debug.h"
#include "elf/elf_file.h"
#include "elf/elf_imports.h"
#include "elf/elf_section.h"
#include "elf/elf_symbols.h"

#define ELF_SOURCES 3 /* of symbols, numbered as elf_symbol.source */

struct elf_file {
	unsigned int owners; /* besides the first */
	int fd;
	char *path;
	char *debug_root; /* NULL: where this machine keeps them */
	Elf *elf;
	uint64_t bytes;
	GElf_Ehdr header;
	GElf_Phdr *segments;
	size_t segment_count;
	char build_id[ELF_BUILD_ID_HEX_MAX];
	char *soname;
	int executable;

	uint32_t symbols_max; /* of all tables */
	struct elf_symbols tables[ELF_SOURCES];
	int table_errs[ELF_SOURCES]; /* 1: not tried yet; 0 loaded; else why not */
	struct elf_imports imports;
	int imports_err; /* 1: not loaded yet; 0; -ENOEXEC, -ENOMEM */
	struct elf_debug debug;
	int debug_err; /* 1: not looked for yet; 0 open; -ENOENT */

	struct elf_debug alternate; /* of the file with the DWARF */
	int dwarf_err;              /* 1: not looked for yet; 0: there is some; -ENOENT */
	int dwarf_fd, alternate_fd; /* borrowed from fd, debug and alternate; -1: none */
};

/* Looks for the debug file, once. 0 it is open; -ENOENT. */
int elf_file_load_debug(struct elf_file *file);
void elf_file_close_debug(struct elf_file *file);

#endif
