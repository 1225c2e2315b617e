/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ELF file with any number of function symbols. Symbol i has the name i % LARGE_NAMES and covers
 * LARGE_STEP bytes.
 */
#pragma once

#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_NAMES 26u /* "a" to "z" */
#define LARGE_BASE  0x1000ull
#define LARGE_STEP  16u

struct large_elf {
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	Elf64_Shdr sections[4];
	char names[64], strings[2 * LARGE_NAMES + 1];
	Elf64_Sym symbols[];
};

/* Returns a descriptor of a memfd. */
static inline int large_elf(uint32_t count)
{
	size_t bytes = sizeof(struct large_elf) + count * sizeof(Elf64_Sym);
	struct large_elf *elf = calloc(1, bytes);
	int fd = memfd_create("large", MFD_CLOEXEC);

	memcpy(elf->header.e_ident, ELFMAG "\2\1\1", 7);
	elf->header.e_type = ET_DYN;
	elf->header.e_machine = EM_X86_64;
	elf->header.e_version = 1;
	elf->header.e_phoff = offsetof(struct large_elf, segment);
	elf->header.e_phentsize = sizeof(Elf64_Phdr);
	elf->header.e_phnum = 1;
	elf->header.e_shoff = offsetof(struct large_elf, sections);
	elf->header.e_shentsize = sizeof(Elf64_Shdr);
	elf->header.e_shnum = 4;
	elf->header.e_shstrndx = 1;
	elf->segment = (Elf64_Phdr){
		.p_type = PT_LOAD, .p_filesz = bytes, .p_memsz = bytes, .p_align = 4096};
	memcpy(elf->names, "\0.symtab", 9);
	elf->sections[1] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
					.sh_offset = offsetof(struct large_elf, names),
					.sh_size = sizeof(elf->names)};
	elf->sections[2] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
					.sh_offset = offsetof(struct large_elf, strings),
					.sh_size = sizeof(elf->strings)};
	elf->sections[3] = (Elf64_Shdr){.sh_name = 1,
					.sh_type = SHT_SYMTAB,
					.sh_offset = sizeof(struct large_elf),
					.sh_size = count * sizeof(Elf64_Sym),
					.sh_link = 2,
					.sh_addralign = 8,
					.sh_entsize = sizeof(Elf64_Sym)};
	for (uint32_t i = 0; i < LARGE_NAMES; i++)
		elf->strings[2 * i + 1] = (char)('a' + i);
	for (uint32_t i = 0; i < count; i++)
		elf->symbols[i] = (Elf64_Sym){.st_name = i % LARGE_NAMES * 2 + 1,
					      .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					      .st_shndx = 1,
					      .st_value = LARGE_BASE + (uint64_t)i * LARGE_STEP,
					      .st_size = LARGE_STEP};
	if (fd < 0 || write(fd, elf, bytes) != (ssize_t)bytes)
		abort();
	free(elf);
	return fd;
}

static inline char large_elf_name(uint64_t vaddr)
{
	return (char)('a' + (vaddr - LARGE_BASE) / LARGE_STEP % LARGE_NAMES);
}
